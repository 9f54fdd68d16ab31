"""Accounting of stored bytes: what packs hold, who needs it, alone or not, and what nobody does.

Packs only: log objects of volumes, which folds remove, and manifests are not counted. A chunk that
was moved is needed where it is now; its pack of before counts as garbage as long as it exists. What
changes meanwhile may be counted as before or as after.
"""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from acstor import exception, native
from acstor.origin.base import ObjectStore
from acstor.repository import layout, moved_packs, pack_reader
from acstor.repository.repository import Repository
from acstor.repository.subjects import UNREADABLE, Subject, Subjects

Owner = TypeVar("Owner", bound=Hashable)


@dataclasses.dataclass(frozen=True, slots=True)
class OwnerSpace(Generic[Owner]):
    """Stored bytes that an owner needs: an image, volume, snapshot or version, or a project."""

    owner: Owner
    used_bytes: int
    """Bytes of chunks, as they are stored, that it needs."""
    unique_bytes: int
    """Bytes of these that no other owner needs."""

    @property
    def shared_bytes(self) -> int:
        """Bytes that another owner needs, too."""
        return self.used_bytes - self.unique_bytes


@dataclasses.dataclass(slots=True)
class Space(Generic[Owner]):
    """Stored bytes of a repository's packs: the sum of overhead, live and garbage."""

    packs: int = 0
    stored_bytes: int = 0
    overhead_bytes: int = 0
    """Bytes of headers and tables of packs of which something is needed."""
    live_bytes: int = 0
    """Bytes of chunks that something needs."""
    garbage_bytes: int = 0
    """Bytes of all else, of packs that nothing needs whole."""
    owners: list[OwnerSpace[Owner]] = dataclasses.field(default_factory=list)
    unreadable: list[Subject] = dataclasses.field(default_factory=list)
    """Subjects whose record or manifest is not readable: what they need counts as garbage."""


def account(repository: Repository) -> Space[Subject]:
    """Add up what the packs of a repository hold, for each image, volume, snapshot and version.

    :raises UnavailableError: when the origin cannot be reached.
    """
    return account_owners(repository, lambda subject: subject)


def account_owners(repository: Repository, owner_of: Callable[[Subject], Owner]) -> Space[Owner]:
    """Add up what the packs of a repository hold, for each owner of images, volumes and the like.

    :param owner_of: of a subject, whole; what subjects of one owner share is counted once.
    :raises UnavailableError: when the origin cannot be reached.
    """
    space: Space[Owner] = Space()
    # The packs first: one that a registration stores meanwhile would count as garbage.
    sizes = _sizes(repository.origin)
    runs = native.SpaceAccount()
    numbers: dict[Owner, int] = {}
    subjects = Subjects(repository)
    for subject in subjects.all():
        try:
            owner = owner_of(subject.whole)
            _add(subjects, subject, numbers.setdefault(owner, len(numbers)), runs)
        except UNREADABLE:
            space.unreadable.append(subject)
    moved = moved_packs.follow(
        dict(runs.live_runs()),
        lambda pack: moved_packs.find_moved(repository.origin, pack),
        sizes.__contains__,
    )
    for move in moved.moves:
        runs.move_pack(move)
    live, sums = runs.totals()
    for owner, number in numbers.items():
        if number in sums:
            space.owners.append(OwnerSpace(owner, *sums[number]))
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
