"""Garbage collection: deleting packs and manifests that no image refers to.

Mark and sweep in two steps. The first collection that finds an object unreferenced condemns it;
one that still finds it so after the grace period deletes it. Registrations may run at the same
time, several collections too, on any host, and all may be killed at any moment. RFD 5 says why
no referenced object is ever deleted; the order of the steps in :meth:`Collector.collect` matters.
"""

import dataclasses
import time
from collections.abc import Callable

from acstor import dataplane, exception
from acstor.repository import layout, working_set
from acstor.repository.condemnation import State, Tombstone, Tombstones
from acstor.repository.repository import Image, Repository


@dataclasses.dataclass(slots=True)
class Report:
    """What a collection found and did."""

    images: int = 0
    objects: int = 0
    """Packs and manifests in the origin."""
    referenced: int = 0
    condemned: int = 0
    """Objects condemned by this collection."""
    waiting: int = 0
    """Condemned objects whose grace period is not over."""
    lifted: int = 0
    """Objects that are referenced again."""
    deleted: int = 0
    bytes_freed: int = 0
    working_sets: int = 0
    """Working sets of images that are gone."""
    leftovers: int = 0
    """Files of crashed writers removed."""
    seconds: float = 0.0


class Collector:
    """Collects the garbage of one repository.

    :param host: name of this host; times are only ever compared with times of the same host.
    :param grace_seconds: from this host's first sight of a condemned object to its deletion.
    :param clock: seconds, of this host.
    """

    def __init__(
        self,
        repository: Repository,
        host: str,
        grace_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep what to collect with."""
        self._repository = repository
        self._origin = repository.origin
        self._tombstones = Tombstones(repository.origin)
        self._host = host
        self._grace_seconds = grace_seconds
        self._clock = clock

    def collect(self) -> Report:
        """Run one collection.

        :raises CorruptError: when an image's record or manifest cannot be read: what it refers to
            is then unknown, and nothing is deleted.
        :raises UnsupportedError: when a newer release wrote one of them.
        """
        started = time.monotonic()
        report = Report()
        # First the tombstones: an object is deleted only if it was condemned before the marking
        # began, and its tombstone did not change since.
        tombstones = [self._tombstones.find(name) for name in sorted(self._tombstones.names())]
        present = self._list_objects()
        marked = self._mark(report)
        report.objects = len(present)
        report.referenced = len(marked & present.keys())
        for tombstone in tombstones:
            if tombstone is not None:
                self._decide(tombstone, tombstone.name in marked, report)
        known = {tombstone.name for tombstone in tombstones if tombstone is not None}
        for name in sorted(present.keys() - marked - known):
            fresh = Tombstone(name, present[name], State.CONDEMNED, {self._host: self._clock()})
            report.condemned += self._tombstones.change(None, fresh)
        report.working_sets = self._forget_working_sets()
        report.leftovers = self._origin.sweep()
        report.seconds = time.monotonic() - started
        return report

    def _forget_working_sets(self) -> int:
        """Remove what was learnt of images that are gone; return how many they were."""
        # The sets first: an image that appears meanwhile keeps its own.
        learnt = set(working_set.list_image_ids(self._origin))
        orphans = learnt - set(self._repository.list_image_ids())
        return sum(working_set.forget(self._origin, image_id) for image_id in sorted(orphans))

    def _list_objects(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for prefix in (layout.PACK_PREFIX, layout.MANIFEST_PREFIX):
            for key in self._origin.list(prefix):
                name = layout.name_of(key)
                if name:
                    found[name] = key
        return found

    def _mark(self, report: Report) -> set[str]:
        """Return the names of everything that the images refer to."""
        marked: set[str] = set()
        for image_id in list(self._repository.list_image_ids()):
            found = self._load(image_id)
            if found is not None:
                report.images += 1
                manifest = found
                marked.add(manifest.digest)
                marked.update(pack.hex() for pack in manifest.packs())
        return marked

    def _load(self, image_id: str) -> dataplane.Manifest | None:
        """Return an image's manifest, None when the image was removed meanwhile."""
        before: Image | None = None
        while True:
            image = self._repository.find_image(image_id)
            if image is None:
                return None
            try:
                return self._repository.load_manifest(image.record.manifest)
            except exception.NotFoundError as error:
                # Published anew between the two reads, or really gone.
                if before and before.token == image.token:
                    raise exception.CorruptError(
                        f"the manifest of image {image_id} is missing, nothing was collected",
                        hint=f"register image {image_id} again or remove it",
                    ) from error
                before = image

    def _decide(self, tombstone: Tombstone, is_marked: bool, report: Report) -> None:
        if tombstone.state is State.DELETING:
            # A collection before was killed here; the name is never used again.
            self._delete(tombstone, report)
        elif is_marked:
            report.lifted += self._tombstones.change(tombstone, None)
        elif not self._is_grace_over(tombstone):
            report.waiting += 1
        else:
            deleting = dataclasses.replace(tombstone, state=State.DELETING)
            if self._tombstones.change(tombstone, deleting):
                sealed = self._tombstones.find(tombstone.name)
                if sealed is not None and sealed.state is State.DELETING:
                    self._delete(sealed, report)

    def _is_grace_over(self, tombstone: Tombstone) -> bool:
        now = self._clock()
        first_seen = tombstone.seen.get(self._host)
        if first_seen is None or first_seen > now:
            # Another host condemned it, or this host's clock was set back: the time starts now.
            seen = {**tombstone.seen, self._host: now}
            self._tombstones.change(tombstone, dataclasses.replace(tombstone, seen=seen))
            return False
        return now - first_seen >= self._grace_seconds

    def _delete(self, tombstone: Tombstone, report: Report) -> None:
        try:
            size = self._origin.size(tombstone.key)
        except exception.NotFoundError:
            size = 0
        if self._origin.delete(tombstone.key):
            report.deleted += 1
            report.bytes_freed += size
        # Only now: whoever sees no tombstone must also see no object.
        self._tombstones.change(tombstone, None)
