"""The mark phase of garbage collection: what images, volumes, snapshots and hosts refer to."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Container

from acstor import exception
from acstor.repository import layout
from acstor.repository.gc.log_coverage import LogCoverage
from acstor.repository.gc.remembered_packs import (
    MemoryRememberedPacks,
    RememberedPacks,
    names_of,
)
from acstor.repository.images import usage
from acstor.repository.repository import Repository
from acstor.repository.volumes import record_refs

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Marked:
    """Objects that are referred to."""

    names: set[str] = dataclasses.field(default_factory=set)
    """Ids of packs and digests of manifests."""
    logs: LogCoverage = dataclasses.field(default_factory=LogCoverage)
    images: int = 0
    volumes: int = 0
    snapshots: int = 0
    hosts: int = 0
    manifests_read: int = 0
    """Manifests that no collection before had read."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """One state of one ref."""

    manifest: str | None
    identity: str
    """Different in every state of the ref."""


class Marker:
    """Reads every ref that keeps objects alive.

    Every ref is read once, as a whole: a reference that moves within one ref, from a volume's log
    to its new manifest for example, is seen in one place or the other.

    :param remembered: packs of manifests that were read before; refs are always read.
    :param present: names of objects that existed a moment ago.
    """

    def __init__(
        self,
        repository: Repository,
        remembered: RememberedPacks | None = None,
        present: Container[str] = frozenset(),
    ) -> None:
        self._repository = repository
        self._origin = repository.origin
        self._remembered = remembered or MemoryRememberedPacks()
        self._present = present
        self._manifests: set[str] = set()
        self.marked = Marked()

    def mark(self) -> Marked:
        """Return everything that is referred to.

        :raises CorruptError: when a record or manifest cannot be read: what it refers to is then
            unknown.
        :raises UnsupportedError: when a newer release wrote one of them.
        """
        self._mark_records()
        # The hosts last: one that attaches an image publishes its record, and then looks whether
        # the image is still registered. So one marking alone sees the one or the other.
        self._mark_hosts()
        self._remembered.retain(self._manifests)
        return self.marked

    def _mark_records(self) -> None:
        marked = self.marked
        for image_id in list(self._repository.list_image_ids()):
            marked.images += self._mark_ref(
                f"image {image_id}",
                functools.partial(self._find_image, image_id),
                hint=f"register image {image_id} again or remove it",
            )
        for volume_id in list(record_refs.volume_ids(self._origin)):
            marked.volumes += self._mark_ref(
                f"volume {volume_id}",
                functools.partial(self._find_volume, volume_id),
                hint=f"restore it, or delete volume {volume_id}",
            )
        for snapshot_id in list(record_refs.snapshot_ids(self._origin)):
            marked.snapshots += self._mark_ref(
                f"snapshot {snapshot_id}",
                functools.partial(self._find_snapshot, snapshot_id),
                hint=f"restore it, or delete snapshot {snapshot_id}",
            )

    def _mark_hosts(self) -> None:
        for host, record in usage.read_all(self._origin).items():
            self.marked.hosts += 1
            for digest in record.manifests:
                self._mark_used(host, digest)

    def _mark_used(self, host: str, digest: str) -> None:
        """Mark a manifest that a host uses; one that is gone has nothing left to keep."""
        self.marked.names.add(digest)
        try:
            self._mark_manifest(digest)
        except exception.NotFoundError:
            LOG.warning(
                "host %s has manifest %s attached, which the origin does not hold: guests there "
                "fail at what the host has not cached", host, digest
            )  # fmt: skip

    def _find_image(self, image_id: str) -> _Found | None:
        image = self._repository.find_image(image_id)
        return None if image is None else _Found(image.record.manifest, image.token)

    def _find_volume(self, volume_id: str) -> _Found | None:
        volume = record_refs.find_volume(self._origin, volume_id)
        if volume is None:
            return None
        record = volume.record
        self.marked.logs.add(record.coverage(volume.id))
        if record.pending is not None:
            self.marked.names.update(record.pending.packs)
            self._mark_pending(record.pending.disk.manifest)
        return _Found(record.manifest, record.nonce)

    def _find_snapshot(self, snapshot_id: str) -> _Found | None:
        snapshot = record_refs.find_snapshot(self._origin, snapshot_id)
        if snapshot is None:
            return None
        self.marked.logs.add(snapshot.record.logs)
        return _Found(snapshot.record.manifest, snapshot.record.nonce)

    def _mark_ref(self, what: str, find: Callable[[], _Found | None], hint: str) -> bool:
        """Mark what one ref refers to; return False when it was removed meanwhile."""
        before: _Found | None = None
        while True:
            found = find()
            if found is None:
                return False
            if found.manifest is None:
                return True
            try:
                self._mark_manifest(found.manifest)
            except exception.NotFoundError as error:
                # Changed between the two reads, or really gone.
                if before == found:
                    raise exception.CorruptError(
                        f"the manifest of {what} is missing, nothing was collected", hint=hint
                    ) from error
                before = found
            else:
                return True

    def _mark_manifest(self, digest: str) -> None:
        if digest in self._manifests:
            return
        packs = self._remembered.find(digest)
        if packs is None:
            references = self._repository.load_manifest(digest).references()
            packs = names_of(sorted(references.keys() - {bytes.fromhex(digest)}))
            self._remembered.add(digest, packs)
            self.marked.manifests_read += 1
        elif digest not in self._present and not self._origin.exists(layout.manifest_key(digest)):
            raise exception.NotFoundError(f"manifest {digest} is not in the origin")
        self._manifests.add(digest)
        self.marked.names.add(digest)
        self.marked.names.update(packs)

    def _mark_pending(self, digest: str | None) -> None:
        """Mark a manifest that may not be stored yet.

        What it refers to is named beside it or marked through another ref then: see RFD 8.
        """
        if digest is None:
            return
        self.marked.names.add(digest)
        try:
            self._mark_manifest(digest)
        except exception.NotFoundError:
            return
