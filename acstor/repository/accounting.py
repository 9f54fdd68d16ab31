"""Accounting of stored bytes: what packs hold, who needs it, alone or not, and what nobody does.

Packs only: log objects of volumes, which folds remove, and manifests are not counted. What changes
meanwhile may be counted as before or as after.
"""

import dataclasses

from acstor import exception, native
from acstor.origin.base import ObjectStore
from acstor.repository import layout, pack_reader
from acstor.repository.repository import Repository
from acstor.repository.subjects import UNREADABLE, Subject, Subjects


@dataclasses.dataclass(frozen=True, slots=True)
class SubjectSpace:
    """Stored bytes of an image, a volume or a snapshot."""

    subject: Subject
    used_bytes: int
    """Bytes of chunks, as they are stored, that it needs."""
    unique_bytes: int
    """Bytes of these that nothing else needs."""

    @property
    def shared_bytes(self) -> int:
        """Bytes that something else needs, too."""
        return self.used_bytes - self.unique_bytes


@dataclasses.dataclass(slots=True)
class Space:
    """Stored bytes of a repository's packs: the sum of overhead, live and garbage."""

    packs: int = 0
    stored_bytes: int = 0
    overhead_bytes: int = 0
    """Bytes of headers and tables of packs of which something is needed."""
    live_bytes: int = 0
    """Bytes of chunks that something needs."""
    garbage_bytes: int = 0
    """Bytes of all else, of packs that nothing needs whole."""
    subjects: list[SubjectSpace] = dataclasses.field(default_factory=list)
    unreadable: list[Subject] = dataclasses.field(default_factory=list)
    """Subjects whose record or manifest is not readable: what they need counts as garbage."""


def account(repository: Repository) -> Space:
    """Add up what the packs of a repository hold.

    :raises UnavailableError: when the origin cannot be reached.
    """
    space = Space()
    # The packs first: one that a registration stores meanwhile would count as garbage.
    sizes = _sizes(repository.origin)
    runs = native.SpaceAccount()
    subjects = list(Subjects(repository).all())
    for owner, subject in enumerate(subjects):
        try:
            _add(Subjects(repository), subject, owner, runs)
        except UNREADABLE:
            space.unreadable.append(subject)
    live, owners = runs.totals()
    for subject, sums in zip(subjects, map(owners.get, range(len(subjects))), strict=True):
        if sums is not None:
            space.subjects.append(SubjectSpace(subject, *sums))
    space.packs, space.stored_bytes = len(sizes), sum(sizes.values())
    for pack, live_bytes in live:
        if pack in sizes:
            space.live_bytes += live_bytes
            space.overhead_bytes += _overhead(repository.origin, pack)
    space.garbage_bytes = space.stored_bytes - space.live_bytes - space.overhead_bytes
    return space


def _sizes(objects: ObjectStore) -> dict[bytes, int]:
    sizes = {}
    for key in objects.list(layout.PACK_PREFIX):
        name = layout.name_of(key)
        if name:
            try:
                sizes[bytes.fromhex(name)] = objects.size(key)
            except exception.NotFoundError:
                continue  # collected since
    return sizes


def _add(subjects: Subjects, subject: Subject, owner: int, runs: native.SpaceAccount) -> None:
    disk = subjects.disk_of(subject)
    manifest = subjects.load(disk) if disk is not None else None
    if manifest is not None:
        manifest.account(runs, owner)


def _overhead(objects: ObjectStore, pack: bytes) -> int:
    """Return how many bytes of a pack are no chunks; 0 where it is damaged, or gone."""
    try:
        return pack_reader.overhead_of(pack_reader.read_header(objects, pack))
    except UNREADABLE:
        return 0
