"""The mark phase of garbage collection: what images, volumes, versions and hosts refer to."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Container, Sequence

from acstor import exception, native
from acstor.repository import layout, moved_packs
from acstor.repository.gc import compaction_record
from acstor.repository.gc.log_coverage import LogCoverage
from acstor.repository.gc.remembered_packs import (
    MemoryRememberedPacks,
    RememberedPacks,
    names_of,
)
from acstor.repository.images import usage
from acstor.repository.moved_packs import Followed
from acstor.repository.repository import Repository
from acstor.repository.versions import version_refs
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.record import Pending

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Marked:
    """Objects that are referred to."""

    names: set[str] = dataclasses.field(default_factory=set)
    """Ids of packs and digests of manifests, and names of what says where packs were moved to."""
    kept: set[str] = dataclasses.field(default_factory=set)
    """Packs that are being made or copied: by folds, and by compactions."""
    served: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """By pack that nothing needs any more since others have its chunks, name and key of all that
    is needed instead."""
    logs: LogCoverage = dataclasses.field(default_factory=LogCoverage)
    images: int = 0
    volumes: int = 0
    snapshots: int = 0
    versions: int = 0
    hosts: int = 0
    manifests_read: int = 0
    """Manifests that no collection before had read."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """One state of one ref."""

    manifests: tuple[str, ...]
    identity: str
    """Different in every state of the ref."""


class Marker:
    """Reads every ref that keeps objects alive.

    Every ref is read once, as a whole: a reference that moves within one ref, from a volume's log
    to its new manifest for example, is seen in one place or the other.

    :param remembered: packs of manifests that were read before; refs are always read.
    :param present: names of objects that existed a moment ago.
    :param is_whole: whether to find out what is needed of each pack, not only of those that were
        moved: the summary of every manifest is read.
    """

    def __init__(
        self,
        repository: Repository,
        remembered: RememberedPacks | None = None,
        present: Container[str] = frozenset(),
        *,
        is_whole: bool = False,
    ) -> None:
        self._repository = repository
        self._origin = repository.origin
        self._remembered = remembered or MemoryRememberedPacks()
        self._present = present
        self._is_whole = is_whole
        self._manifests: set[str] = set()
        self._named: set[str] = set()
        """Packs that manifests name, and manifests below them."""
        self._of_images: set[str] = set()
        """Manifests of images, registered or in use."""
        self.marked = Marked()
        self.followed = Followed({})
        """Needed bytes of packs: of all, or of those that manifests name which name one that was
        moved."""

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
        # Before what was moved is looked at: a compaction that is not seen here has ended, and what
        # it has moved is seen there, or has not begun, and its packs were not there to be listed.
        self.marked.kept.update(compaction_record.named_by_all(self._origin))
        self.marked.names.update(self.marked.kept)
        self._mark_packs()
        self._remembered.retain(self._manifests)
        return self.marked

    def _mark_packs(self) -> None:
        """Mark the packs that manifests name, or those that have their chunks now."""
        moved = set(moved_packs.list_moved(self._origin))
        if not moved and not self._is_whole:
            self.marked.names.update(self._named)
            return
        self._follow(moved)
        names = self.marked.names
        names.update(pack.hex() for pack in self.followed.needed)
        names.update(layout.moved_name(pack.hex()) for pack in self.followed.met)
        # Its name is that of the pack, and no name may come twice: it goes after the pack.
        names.update(layout.moved_name(pack) for pack in moved if pack in self._present)
        for pack in self.followed.served:
            self.marked.served[pack.hex()] = self.followed.relied_on(pack)

    def _follow(self, moved: set[str]) -> None:
        space = native.SpaceAccount()
        for digest in sorted(self._manifests):
            if not self._is_whole and moved.isdisjoint(self._packs_of(digest)):
                continue
            # One that was removed meanwhile keeps all that it named.
            with contextlib.suppress(exception.NotFoundError):
                self._repository.load_manifest(digest).account(space, 0)
        needed = dict(space.live_runs())
        self.marked.names.update(self._named - {pack.hex() for pack in needed})

        def find(pack: bytes) -> native.MovedPack | None:
            if pack.hex() not in moved:
                return None
            return moved_packs.find_moved(self._origin, pack)

        def is_there(pack: bytes) -> bool:
            name = pack.hex()
            return name in self._present or self._origin.exists(layout.pack_key(name))

        self.followed = moved_packs.follow(needed, find, is_there)

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

        for version_id in list(version_refs.version_ids(self._origin)):
            marked.versions += self._mark_ref(
                f"version {version_id}",
                functools.partial(self._find_version, version_id),
                hint=f"restore it, or delete version {version_id}",
            )

    def _mark_hosts(self) -> None:
        for host, record in usage.read_all(self._origin).items():
            self.marked.hosts += 1
            for digest in record.manifests:
                self._mark_used(host, digest)

    def _mark_used(self, host: str, digest: str) -> None:
        """Mark a manifest that a host uses; one that is gone has nothing left to keep."""
        self.marked.names.add(digest)
        self._of_images.add(digest)
        try:
            self._mark_manifest(digest)
        except exception.NotFoundError:
            LOG.warning(
                "host %s has manifest %s attached, which the origin does not hold: guests there "
                "fail at what the host has not cached", host, digest
            )  # fmt: skip

    def _find_image(self, image_id: str) -> _Found | None:
        image = self._repository.find_image(image_id)
        if image is None:
            return None
        self._of_images.add(image.record.manifest)
        return _Found((image.record.manifest,), image.token)

    def _find_volume(self, volume_id: str) -> _Found | None:
        volume = record_refs.find_volume(self._origin, volume_id)
        if volume is None:
            return None
        record = volume.record
        self.marked.logs.add(record.coverage(volume.id))
        self._mark_pending(record.pending)
        return _Found(_one(record.manifest), record.nonce)

    def _find_snapshot(self, snapshot_id: str) -> _Found | None:
        snapshot = record_refs.find_snapshot(self._origin, snapshot_id)
        if snapshot is None:
            return None
        self.marked.logs.add(snapshot.record.logs)
        return _Found(_one(snapshot.record.manifest), snapshot.record.nonce)

    def _find_version(self, version_id: str) -> _Found | None:
        version = version_refs.find_version(self._origin, version_id)
        if version is None:
            return None
        self.marked.logs.add(version.record.logs)
        self._mark_pending(version.record.pending)
        return _Found(version.record.manifests, version.record.nonce)

    def _mark_ref(self, what: str, find: Callable[[], _Found | None], hint: str) -> bool:
        """Mark what one ref refers to; return False when it was removed meanwhile."""
        before: _Found | None = None
        while True:
            found = find()
            if found is None:
                return False
            try:
                for digest in found.manifests:
                    self._mark_manifest(digest)
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
            packs = self._packs_of(digest)
        elif digest not in self._present and not self._origin.exists(layout.manifest_key(digest)):
            raise exception.NotFoundError(f"manifest {digest} is not in the origin")
        self._manifests.add(digest)
        self.marked.names.add(digest)
        self._named.update(packs)

    def packs_of_images(self) -> set[str]:
        """Return the packs that manifests of images name, once everything is marked."""
        return {
            pack for digest in self._of_images & self._manifests for pack in self._packs_of(digest)
        }

    def _packs_of(self, digest: str) -> Sequence[str]:
        """Return the packs that a manifest names, and the manifests below it."""
        packs = self._remembered.find(digest)
        if packs is None:
            references = self._repository.load_manifest(digest).references()
            packs = names_of(sorted(references.keys() - {bytes.fromhex(digest)}))
            self._remembered.add(digest, packs)
            self.marked.manifests_read += 1
        return packs

    def _mark_pending(self, pending: Pending | None) -> None:
        """Mark packs that are being written, and a manifest that may not be stored yet.

        What it refers to is named beside it or marked through another ref then: see RFD 8.
        """
        if pending is None:
            return
        self.marked.kept.update(pending.packs)
        digest = pending.disk.manifest
        if digest is None:
            return
        self.marked.names.add(digest)
        try:
            self._mark_manifest(digest)
        except exception.NotFoundError:
            return


def _one(manifest: str | None) -> tuple[str, ...]:
    return () if manifest is None else (manifest,)
