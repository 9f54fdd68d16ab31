"""Garbage collection: deleting packs, manifests and log objects that nothing refers to.

Mark and sweep in two steps. The first collection that finds an object unreferenced condemns it;
one that still finds it so after the grace period deletes it. Registrations, owners of volumes,
snapshots and clones may be at work at the same time, several collections too, on any host, and all
may be killed at any moment. Why no referenced object is ever deleted: RFD 5, and for volumes
RFD 8. In short:

* whoever refers to an object that exists already (an image, a snapshot, a clone, a version) first
  publishes the reference and then looks whether the object is condemned, while a collection first
  reads what is condemned and then the references: one of them sees the other;
* whoever makes an object for a volume (a log object of its epoch, a pack or manifest of a fold) or
  for a version (of a capture, of a merge) is named by its record before the object exists: when it
  has a tombstone, the reference was there before, and a collection reads the references after the
  tombstones;
* whoever moves chunks (a compaction) names the packs that it makes before they exist, and a
  collection looks at what names them before it looks at what was moved; a pack whose chunks were
  moved is deleted after those that have them were claimed: RFD 23;
* a host that attaches a manifest first names it in its usage record and then looks whether the
  image is still registered, while a collection looks at the hosts' records after the images' refs:
  RFD 13;
* whoever copies the repository places a hold before it reads the first ref, while a collection
  looks for holds after it has read the last one: hold.py.

The order of the steps in :meth:`Collector.collect` is what both rest on.
"""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator

from acstor import exception
from acstor.repository import layout
from acstor.repository.gc import claim
from acstor.repository.gc.condemnation import (
    State,
    Tombstone,
    Tombstones,
    key_of_logs,
    name_of_logs,
)
from acstor.repository.gc.hold import holders
from acstor.repository.gc.log_coverage import LogCoverage, uncovered_runs
from acstor.repository.gc.marking import Marked, Marker
from acstor.repository.gc.remembered_packs import RememberedPacks
from acstor.repository.images import boot_profile, working_set
from acstor.repository.repository import Repository
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.log_range import LogRange

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Report:
    """Report of a collection."""

    images: int = 0
    volumes: int = 0
    snapshots: int = 0
    versions: int = 0
    hosts: int = 0
    """Hosts whose usage records were read."""
    manifests_read: int = 0
    """Manifests that no collection before had read."""
    objects: int = 0
    """Packs, manifests, and what says where packs were moved to, in the origin."""
    log_objects: int = 0
    """Log objects of volumes in the origin."""
    referenced: int = 0
    """Those of them that are referred to."""
    condemned: int = 0
    """Tombstones that this collection made: of one of these, or of a run of log objects."""
    waiting: int = 0
    """Tombstones whose grace period is not over, or whose object is referred to all the same."""
    lifted: int = 0
    """Tombstones of what is referenced again."""
    deleted: int = 0
    """Objects deleted."""
    bytes_freed: int = 0
    working_sets: int = 0
    """Working sets of images that are gone."""
    boot_profiles: int = 0
    """Boot profiles of images that are gone."""
    leftovers: int = 0
    """Files of crashed writers removed."""
    postponed: int = 0
    """Tombstones that were not changed because the origin is full."""
    holds: int = 0
    """Copies of the repository that are under way: nothing was deleted."""
    seconds: float = 0.0


class Collector:
    """Collects the garbage of one repository.

    :param host: name of this host; times are only ever compared with times of the same host.
    :param grace_seconds: from this host's first sight of a condemned object to its deletion.
    :param clock: seconds, of this host.
    :param remembered: what collections before have read; None: nothing.
    """

    def __init__(
        self,
        repository: Repository,
        host: str,
        grace_seconds: float,
        clock: Callable[[], float] = time.time,
        remembered: RememberedPacks | None = None,
    ) -> None:
        self._repository = repository
        self._origin = repository.origin
        self._tombstones = Tombstones(repository.origin)
        self._host = host
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._remembered = remembered
        self._served: dict[str, dict[str, str]] = {}
        """See :attr:`Marked.served`, of the collection that runs."""

    def collect(self) -> Report:
        """Run one collection.

        :raises CorruptError: when a record or a manifest cannot be read: what it refers to
            is then unknown, and nothing is deleted.
        :raises UnsupportedError: when a newer release wrote one of them.
        """
        started = time.monotonic()
        report = Report(leftovers=self._origin.sweep())
        with self._origin.freeing(is_beginning=True):
            self._collect(report)
        # Once more: the reserve is filled from what was freed.
        report.leftovers += self._origin.sweep()
        report.seconds = time.monotonic() - started
        return report

    def _collect(self, report: Report) -> None:
        # First the tombstones: an object is deleted only if it was condemned before the marking
        # began, and its tombstone did not change since. Then the objects, so that those that are
        # made for volumes meanwhile, which are named before they exist, are not condemned in vain.
        tombstones = [self._tombstones.find(name) for name in sorted(self._tombstones.names())]
        present = self._list_objects()
        logs = self._list_logs()
        marked = Marker(self._repository, self._remembered, present).mark()
        self._served = marked.served
        report.images, report.volumes = marked.images, marked.volumes
        report.snapshots, report.versions = marked.snapshots, marked.versions
        report.hosts = marked.hosts
        report.manifests_read = marked.manifests_read
        held_by = holders(self._origin, self._host, self._clock)
        report.holds = len(held_by)
        for holder in held_by:
            LOG.info("nothing is deleted while %s copies the repository", holder)
        report.objects, report.log_objects = len(present), len(logs)
        report.referenced = len(marked.names & present.keys())
        known = [tombstone for tombstone in tombstones if tombstone is not None]
        for tombstone in known:
            with _postponed(report):
                self._decide(tombstone, _is_marked(tombstone, marked), report)
        names = {tombstone.name for tombstone in known}
        with _postponed(report):
            for name in sorted(present.keys() - marked.names - names):
                self._condemn(name, present[name], report)
            self._condemn_logs(logs, known, marked, report)
        report.working_sets, report.boot_profiles = self._forget_boots()

    def _forget_boots(self) -> tuple[int, int]:
        """Remove the working sets and boot profiles of images that are gone; count them."""
        # These first: an image that appears meanwhile keeps its own.
        sets = set(working_set.list_image_ids(self._origin))
        profiles = set(boot_profile.list_image_ids(self._origin))
        present = set(self._repository.list_image_ids())
        return (
            sum(working_set.forget(self._origin, gone) for gone in sorted(sets - present)),
            sum(boot_profile.forget(self._origin, gone) for gone in sorted(profiles - present)),
        )

    def _list_objects(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for prefix in (layout.PACK_PREFIX, layout.MANIFEST_PREFIX):
            for key in self._origin.list(prefix):
                name = layout.name_of(key)
                if name:
                    found[name] = key
        for key in self._origin.list(layout.MOVED_PREFIX):
            pack = layout.name_of(key)
            if pack:
                found[layout.moved_name(pack)] = key
        return found

    def _list_logs(self) -> set[tuple[str, int, int]]:
        keys = self._origin.list(layout.VOLUME_LOG_PREFIX)
        return {found for key in keys if (found := layout.parse_log_key(key)) is not None}

    def _condemn(self, name: str, key: str, report: Report) -> None:
        fresh = Tombstone(name, key, State.CONDEMNED, {self._host: self._clock()})
        report.condemned += self._tombstones.change(None, fresh)

    def _condemn_logs(
        self,
        logs: set[tuple[str, int, int]],
        known: Iterable[Tombstone],
        marked: Marked,
        report: Report,
    ) -> None:
        """Condemn log objects in runs; those that have a tombstone need no second one."""
        condemned = LogCoverage()
        condemned.add(tombstone.logs for tombstone in known if tombstone.logs is not None)
        fresh = [one for one in logs if not condemned.covers(*one)]
        for run in uncovered_runs(fresh, marked.logs):
            self._condemn(name_of_logs(run), key_of_logs(run), report)

    def _decide(self, tombstone: Tombstone, is_marked: bool, report: Report) -> None:
        if tombstone.state is State.DELETING and is_marked:
            # Published in the instant before the deletion, or the tombstone is forged: hosts with
            # volumes may write them. Nobody relies on the object; where it stays, no one misses it.
            LOG.warning("%s is being deleted and still referred to: left alone", tombstone.key)
            report.waiting += 1
        elif tombstone.state is State.DELETING and not report.holds:
            # A collection before was killed here; the name is never used again.
            self._seal_and_delete(tombstone, report)
        elif tombstone.state is State.DELETING:
            report.waiting += 1
        elif is_marked:
            report.lifted += self._tombstones.change(tombstone, None)
        elif not self._is_grace_over(tombstone) or report.holds:
            report.waiting += 1
        else:
            self._seal_and_delete(tombstone, report)

    def _seal_and_delete(self, tombstone: Tombstone, report: Report) -> None:
        """Delete what nothing referred to, if its tombstone is still the one of before the marks.

        Also where it was sealed already: a publisher relies on what has no tombstone, and one that
        was gone for a moment, by whoever forges them, is another one.
        """
        if not self._is_dispensable(tombstone.name):
            LOG.warning("%s is kept: copies of its chunks are being deleted", tombstone.key)
            report.waiting += 1
            return
        deleting = tombstone.sealed()
        with self._origin.freeing():
            is_sealed = self._tombstones.change(tombstone, deleting)
        if is_sealed:
            sealed = self._tombstones.find(tombstone.name)
            if sealed is not None and sealed.nonce == deleting.nonce:
                self._delete(sealed, report)

    def _is_dispensable(self, name: str) -> bool:
        """Return whether what others have in the place of a served pack stays there.

        Claimed as whoever publishes an image does: another collection may have looked before what
        is to rely on it was published.
        """
        keys = self._served.get(name)
        return not keys or not claim.claim_names(self._origin, keys)

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
        for key in self._keys_of(tombstone):
            try:
                size = self._origin.size(key)
            except (exception.NotFoundError, exception.CorruptError):
                size = 0  # nobody needs it: that it is damaged is no reason to stop
            if self._origin.delete(key):
                report.deleted += 1
                report.bytes_freed += size
        if tombstone.logs is not None:
            self._remove_folders(tombstone.logs)
        # Only now: whoever sees no tombstone must also see no object.
        self._tombstones.change(tombstone, None)

    def _remove_folders(self, logs: LogRange) -> None:
        """Remove the folder of an epoch that is over when nothing is left in it."""
        volume = record_refs.find_volume(self._origin, logs.volume)
        is_over = volume is None or logs.epoch not in (volume.record.epoch, volume.record.unsealed)
        if is_over and self._origin.remove_folder(logs.folder) and volume is None:
            self._origin.remove_folder(f"{layout.VOLUME_LOG_PREFIX}{logs.volume}/")

    def _keys_of(self, tombstone: Tombstone) -> list[str]:
        logs = tombstone.logs
        if logs is None:
            return [tombstone.key]
        keys = sorted(self._origin.list(logs.folder))
        return [
            key
            for key in keys
            if (found := layout.parse_log_key(key)) is not None
            and logs.first <= found[2] <= logs.last
        ]


@contextlib.contextmanager
def _postponed(report: Report) -> Iterator[None]:
    """Leave to a later collection what finds no space: what this one deletes makes some."""
    try:
        yield
    except exception.ExhaustedError as error:
        LOG.warning("%s", error)
        report.postponed += 1


def _is_marked(tombstone: Tombstone, marked: Marked) -> bool:
    logs = tombstone.logs
    return tombstone.name in marked.names if logs is None else marked.logs.intersects(logs)
