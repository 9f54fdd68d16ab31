"""Refs for a member that becomes the home: those of its copies whose objects are there.

As a restore into the store that has the objects already. What only the lost home had is gone: logs
of volumes, and what no member had a copy of yet. A volume whose logs may have been there falls back
to its last fold, as to a snapshot, or is left out, as an operator says; no volume becomes an empty
disk. Images that are left out are registered again from Glance.

Killed anywhere it is repeated: until the last step nobody can open the member.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from acstor import exception
from acstor.origin import base, ref_replacement
from acstor.origin.pair import OriginPair
from acstor.origin.replicated import ref_copy
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.member_records import MEMBER_REF, MEMBERS_REF, MembersRecord
from acstor.origin.replicated.members_status import STATUS_REF, MembersStatus
from acstor.origin.replicated.objects import ReplicatedObjects
from acstor.origin.replicated.placement import Placed
from acstor.origin.replicated.promotion.copied_refs import CopiedRefs, read_copies
from acstor.origin.replicated.promotion.new_home import HomeState, NewHome
from acstor.origin.replicated.set_placement import COPIED_FOLDERS
from acstor.repository import layout
from acstor.repository.copying.object_check import UNREADABLE
from acstor.repository.copying.report import CopyDamage
from acstor.repository.copying.roots import Root, RootReader
from acstor.repository.copying.settled_volumes import SealerOf, native_sealer, settled
from acstor.repository.images.image_index import ImageIndexWriter
from acstor.repository.progress import Progress
from acstor.repository.repository import Format, Repository
from acstor.repository.volumes.record import VolumeRecord

MEMBER_SECONDS = 60.0
"""Longest time of a call of a member, without what a large object takes on top."""


@dataclasses.dataclass(frozen=True, slots=True)
class Survey:
    """Outcome of a promotion, before it is done.

    :ivar as_of: seconds since the epoch at which the copies were complete, or later; None: it is
        not known.
    :ivar refs: refs that are kept, by name, as the copies have them.
    :ivar reverted: ids of the volumes among them that fall back to their last fold.
    :ivar lost: refs that cannot be kept, each with the reason.
    :ivar copies_damaged: copies of which not even the names are known.
    :ivar unknown: refs of kinds that this release does not know; they are left out.
    """

    as_of: float | None
    refs: Mapping[str, bytes]
    reverted: Sequence[str]
    lost: Sequence[CopyDamage]
    copies_damaged: int
    unknown: Sequence[str]

    def count(self, prefix: str) -> int:
        """Return how many refs of a folder are kept."""
        return sum(name.startswith(prefix) for name in self.refs)

    def count_lost(self, prefix: str) -> int:
        """Return how many refs of a folder are lost."""
        return sum(one.name.startswith(prefix) for one in self.lost)


class Promotion:
    """Makes one member the home.

    :param name: of the member.
    :param stores: all members that can be reached, by name; whoever opened them closes them.
    :param sealer_of: seals logs of volumes in the member; a test may put its own.
    :raises CorruptError: when the member has no copy of the record of the members, or of the
        repository's format.
    :raises UnavailableError: when the member cannot be reached.
    """

    def __init__(
        self,
        name: str,
        stores: Mapping[str, base.Origin],
        *,
        sealer_of: SealerOf = native_sealer,
        progress: Progress | None = None,
    ) -> None:
        self._name = name
        self._store = stores[name]
        self._copies, self._damaged = read_copies(self._store)
        former = MembersRecord.parse(self._copy_of(MEMBERS_REF))
        self.home = NewHome(name, stores, former)
        self.former_home = former.home
        survivors = [name, *(one for one in stores if one in former.members and one != name)]
        self._members = {one: Member(one, stores[one], MEMBER_SECONDS) for one in survivors}
        self._seal = sealer_of(self._store)
        self._progress = progress or Progress()

    def survey(self) -> Survey:
        """Return what is kept and what is lost; nothing is changed.

        :raises UnavailableError: when a member cannot be reached any more.
        """
        repository = Repository(self._origin(), self._format())
        reader = RootReader(repository, is_restore=True)
        present = {key for folder in COPIED_FOLDERS for key in repository.origin.list(folder)}
        refs: dict[str, bytes] = {}
        reverted: list[str] = []
        lost: list[CopyDamage] = []
        for root in reader.read_all():
            try:
                content, is_older = _kept(root, present)
            except UNREADABLE as error:
                lost.append(CopyDamage(root.name, error.message))
                continue
            refs[root.name] = content
            if is_older:
                reverted.append(root.name.removeprefix(layout.VOLUME_PREFIX))
        return Survey(self._as_of(), refs, reverted, lost, self._damaged, reader.unknown)

    def run(self, survey: Survey, *, reverts_volumes: bool) -> MembersRecord:
        """Make the member the home, and return the record of the members.

        :param survey: of :meth:`survey`, which an operator has seen.
        :param reverts_volumes: True to have volumes fall back, see above; False to leave them out.
        :raises ConflictError: when it is the home already, or another process does the same.
        """
        self.home.begin()
        reverted = {layout.volume_ref(one) for one in survey.reverted}
        left_out = frozenset[str]() if reverts_volumes else reverted
        wanted = {name: survey.refs[name] for name in survey.refs if name not in left_out}
        self._progress.begin("writing refs", len(wanted))
        for name, content in sorted(wanted.items()):
            ref_replacement.replace(self._store, name, self._settled(name, content))
            self._progress.advance(1)
        for name in list(self._written()):
            if name not in wanted:  # of a run before, which was interrupted
                ref_replacement.replace(self._store, name, None)
        found = self._format()
        is_kept = Repository(self._store, found).has_image_index
        ImageIndexWriter(self._store, is_kept=is_kept).ensure()
        self._store.put_if_absent(layout.FORMAT_KEY, [found.encode()])
        record = self.home.finish()
        self._forget_copies()
        return record

    def follow(self) -> MembersRecord:
        """Have members follow that could not be reached before, and return the record.

        :raises ConflictError: when the member is not the home.
        """
        if self.home.state() is not HomeState.HOME:
            raise exception.ConflictError(f"member {self._name} is not the home")
        return self.home.finish()

    def _copy_of(self, name: str) -> bytes:
        content = self._copies.get(name)
        if content is None:
            raise exception.CorruptError(
                f"member {self._name} has no copy of the ref {name}",
                hint="it was never filled: promote another member",
            )
        return content

    def _format(self) -> Format:
        return Format.parse(self._copy_of(layout.FORMAT_REF))

    def _origin(self) -> base.Origin:
        """Return the repository as the survivors have it; it is only read."""
        objects = ReplicatedObjects(self._members, _Survivors(tuple(self._members)))
        return OriginPair(objects, CopiedRefs(self._copies))

    def _as_of(self) -> float | None:
        content = self._copies.get(STATUS_REF)
        try:
            status = None if content is None else MembersStatus.parse(content)
        except (exception.CorruptError, exception.UnsupportedError):
            return None
        seen = None if status is None else status.members.get(self._name)
        if status is None or seen is None or seen.refs_age_seconds is None:
            return None
        return status.updated_at - seen.refs_age_seconds

    def _settled(self, name: str, content: bytes) -> bytes:
        if not name.startswith(layout.VOLUME_PREFIX):
            return content
        return settled(name.removeprefix(layout.VOLUME_PREFIX), content, self._seal)

    def _written(self) -> Iterator[str]:
        """Yield the refs that a run before has written."""
        for name in self._store.list_refs():
            if name != MEMBER_REF and not name.startswith(ref_copy.COPIES_PREFIX):
                yield name

    def _forget_copies(self) -> None:
        """Remove the copies but that by which members that come back are known."""
        kept = ref_copy.copy_name(MEMBERS_REF)
        for name in list(self._store.list_refs(ref_copy.COPIES_PREFIX)):
            if name != kept:
                ref_replacement.replace(self._store, name, None)


class _Survivors:
    """Placement in what is left: of what has copies any member may have the last one.

    :param names: of the members, the new home first.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def place(self, key: str) -> Placed:
        """Return the members of an object."""
        if key.startswith(COPIED_FOLDERS):
            return Placed(self._names)
        return Placed(self._names[:1], is_decided=True, is_sole=True)


def _kept(root: Root, present: set[str]) -> tuple[bytes, bool]:
    """Return the content of a ref that is kept, and whether it is a volume of before.

    :raises CorruptError: and the like when it cannot be kept.
    """
    content, is_older = root.content, False
    damages = list(root.damages)
    if root.name.startswith(layout.VOLUME_PREFIX) and content:
        content, is_older = _without_logs(root)
        damages = [one for one in damages if layout.parse_log_key(one.name) is None]
    if damages:
        raise exception.CorruptError(damages[0].what)
    needed = [key for key in root.keys if key.startswith(COPIED_FOLDERS)]
    missing = [key for key in needed if key not in present]
    if missing:
        raise exception.CorruptError(
            f"{len(missing)} of its {len(needed)} objects are in no member, {missing[0]} for one"
        )
    return content, is_older


def _without_logs(root: Root) -> tuple[bytes, bool]:
    """Return the record of a volume whose logs are lost, and whether it had any.

    :raises CorruptError: when nothing but logs had its content.
    """
    record = VolumeRecord.parse(root.content, root.name.removeprefix(layout.VOLUME_PREFIX))
    is_closed = record.owner is None and record.unsealed is None
    if record.epoch == 0 or (is_closed and not record.logs):
        return root.content, False
    if record.manifest is None:
        raise exception.CorruptError("its content was in logs alone, and is lost with the home")
    return dataclasses.replace(record, logs=(), pending=None).encode(), True
