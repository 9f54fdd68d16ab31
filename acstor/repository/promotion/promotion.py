"""A member becomes the home of the refs: surveyed, completed, written, begun and finished.

As a restore into the store that has the objects already. Killed anywhere it is repeated; until it
is finished nobody can open the member, and of two processes the one that began later counts.
"""

from collections.abc import Iterator, Mapping

from acstor import exception
from acstor.origin import base, ref_replacement
from acstor.origin.replicated import ref_copy
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.member_calls.objects import MemberObjects
from acstor.origin.replicated.member_calls.refs import MemberRefs
from acstor.origin.replicated.member_calls.store import MemberOrigin
from acstor.origin.replicated.member_records import (
    MEMBER_REF,
    MEMBERS_REF,
    MembersRecord,
    read_members,
)
from acstor.origin.replicated.members_status import STATUS_REF, MembersStatus
from acstor.origin.replicated.promotion.copied_refs import read_copies
from acstor.origin.replicated.promotion.new_home import HomeState, NewHome
from acstor.repository import layout
from acstor.repository.copying.object_check import UNREADABLE, check_object
from acstor.repository.copying.settled_volumes import SealerOf, native_sealer, settled
from acstor.repository.copying.transfer import Check
from acstor.repository.images.image_index import ImageIndexWriter
from acstor.repository.progress import Progress
from acstor.repository.promotion.survey import Survey, survey
from acstor.repository.promotion.surviving_objects import SurvivingObjects
from acstor.repository.repository import Format, Repository

MEMBER_SECONDS = 60.0
"""Longest time of a call of a member, without what a large object takes on top."""


class Promotion:
    """Makes one member the home.

    :param name: of the member.
    :param members: all that answer of those that are configured, by name, the former home too;
        whoever opened them closes them.
    :param sealer_of: seals logs of volumes in the member; a test may put its own.
    :param check: compares objects with their names; likewise.
    :raises ConflictError: when the member is the home already, and was never promoted.
    :raises CorruptError: when it has no copy of the record of the members.
    :raises UnavailableError: when it cannot be reached.
    """

    def __init__(
        self,
        name: str,
        members: Mapping[str, Member],
        *,
        sealer_of: SealerOf = native_sealer,
        check: Check = check_object,
        progress: Progress | None = None,
    ) -> None:
        self._name = name
        self._members = members
        self._store: base.Origin = MemberOrigin(members[name])
        refs = {one: MemberRefs(member) for one, member in members.items()}
        self._refs = refs[name]
        self._copies, self._damaged = read_copies(self._refs)
        former = MembersRecord.parse(self._copy_of(MEMBERS_REF))
        self.home = NewHome(name, refs, former)
        self.former_home = former.home
        self._seal = sealer_of(self._store)
        self._check = check
        self._progress = progress or Progress()
        self._objects: SurvivingObjects | None = None
        self.damages: dict[str, str] = {}
        """Objects that no member had sound, when they were to be copied, with the reasons."""

    def survey(self) -> Survey:
        """Return what is kept and what is lost; nothing is changed.

        :raises ConflictError: when another store is the home, or becomes it.
        :raises UnavailableError: when a member cannot be reached any more.
        """
        self.home.require_no_other()
        self.home.state()
        names = self.home.survivors()
        members = {one: MemberObjects(self._members[one]) for one in names}
        self._objects = SurvivingObjects(members, self._check)
        return survey(
            self._copies,
            self._objects,
            self._format(),
            as_of=self._as_of(),
            members=names,
            copies_damaged=self._damaged,
        )

    def run(self, found: Survey, *, reverts_volumes: bool) -> MembersRecord:
        """Make the member the home, and return the record of the members.

        :param found: of :meth:`survey`, which an operator has seen.
        :param reverts_volumes: True to have volumes fall back; False to leave them out.
        :raises ConflictError: when it is the home already, or another process does the same.
        :raises ExhaustedError: when the member is full.
        """
        self._complete(found)
        self.home.begin()
        left_out = {layout.volume_ref(one) for one in found.reverted if not reverts_volumes}
        wanted = {name: found.refs[name] for name in found.refs if name not in left_out}
        self._progress.begin("writing refs", len(wanted))
        for name, content in sorted(wanted.items()):
            self._write(name, self._settled(name, content))
            self._progress.advance(1)
        for name in list(self._written()):
            if name not in wanted:  # of a run before, which was interrupted
                self._write(name, None)
        is_kept = Repository(self._store, self._format()).has_image_index
        self.home.require_current()
        ImageIndexWriter(self._store, is_kept=is_kept).ensure()
        return self._finish()

    def follow(self) -> MembersRecord:
        """Finish what a process before has left, have more members follow; return the record.

        :raises ConflictError: when the member is not the home.
        """
        if self.home.state() is not HomeState.HOME:
            raise exception.ConflictError(f"member {self._name} is not the home")
        return self._finish()

    def _finish(self) -> MembersRecord:
        record = self.home.finish()
        # Only now, as some open the home by this object alone. The copy of the ref is there until
        # the copies go, which is last.
        if layout.FORMAT_REF in self._copies:
            self._store.put_if_absent(layout.FORMAT_KEY, [self._format().encode()])
        self._forget_copies()
        return record

    def _complete(self, found: Survey) -> None:
        """Copy what is kept and the home lacks: it decides what is there from the end on."""
        if self._objects is None:
            raise exception.InternalError("a promotion was not surveyed")
        self._progress.begin("copying objects", len(found.lacking))
        for key in found.lacking:
            try:
                self._objects.copy(key)
            except UNREADABLE as error:
                self.damages[key] = error.message
            self._progress.advance(1)

    def _write(self, name: str, content: bytes | None) -> None:
        """Have the home hold a ref, unless another run, or a service, has it meanwhile."""
        ref = self._refs.get_ref(name)
        self.home.require_current()
        if content != (None if ref is None else ref.content):
            self._refs.swap_ref(name, None if ref is None else ref.token, content)

    def _copy_of(self, name: str) -> bytes:
        content = self._copies.get(name)
        if content is not None:
            return content
        record, _ = read_members(self._refs)
        if record is not None and record.home == self._name:
            raise exception.ConflictError(
                f"{self._name} is the home", hint="promote another member, if this one is lost"
            )
        raise exception.CorruptError(
            f"member {self._name} has no copy of the ref {name}",
            hint="it was never filled: promote another member",
        )

    def _format(self) -> Format:
        return Format.parse(self._copy_of(layout.FORMAT_REF))

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
        return settled(name.removeprefix(layout.VOLUME_PREFIX), content, self._ended)

    def _ended(self, volume: str, epoch: int, first: int) -> tuple[None, int]:
        """Seal a log of which nothing counts, as the survey said.

        What the member has of it are copies: without those that it lacks they are no content.
        """
        return None, self._seal(volume, epoch, first)[1]

    def _written(self) -> Iterator[str]:
        """Yield the refs that a run before has written."""
        for name in self._refs.list_refs():
            if name not in (MEMBER_REF, MEMBERS_REF) and not name.startswith(
                ref_copy.COPIES_PREFIX
            ):
                yield name

    def _forget_copies(self) -> None:
        """Remove the copies but that by which members that come back are known."""
        kept = ref_copy.copy_name(MEMBERS_REF)
        for name in list(self._refs.list_refs(ref_copy.COPIES_PREFIX)):
            if name != kept:
                ref_replacement.replace(self._refs, name, None)
