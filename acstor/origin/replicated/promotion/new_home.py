"""A member that becomes the home of the refs.

::

              begin                   finish
    MEMBER ----------> UNDER_WAY ----------------> HOME
                         |    ^                    |  ^
                         '----' begin              '--' finish

``begin`` gives the member's mark another origin's id: whoever has the former home, or its record of
the members, refuses the member from then on. It also stores a record of the members that names the
former home, so that nobody can open the member as a home; its token is the run's own. ``finish``
swaps that for the record in which the member is the home, so of two runs the later one counts, and
the other one ends in a conflict. What the refs name is written in between
(acstor/repository/promotion).

Nothing here decides that a home is lost. An operator does, and promotes one member.
"""

import contextlib
import enum
import json
import uuid
from collections.abc import Mapping

from acstor import exception, untrusted_json
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.origin.replicated.member_records import (
    MEMBER_REF,
    MEMBERS_REF,
    MemberEntry,
    MemberMark,
    MembersRecord,
    read_mark,
    read_members,
)
from acstor.origin.replicated.ref_copy import RefCopy, copy_name
from acstor.origin.replicated.states import USED, MemberState
from acstor.states import TransitionTable


class HomeState(enum.StrEnum):
    """State of a member on its way to be the home."""

    MEMBER = "member"
    """Another one is its home."""
    UNDER_WAY = "under way"
    """It is the member of nobody else, and cannot be opened yet."""
    HOME = "home"
    """It is the home."""


class HomeEvent(enum.StrEnum):
    """Event in a promotion."""

    BEGIN = "begin"
    FINISH = "finish"


_S, _E = HomeState, HomeEvent

TRANSITIONS = TransitionTable(
    {
        (_S.MEMBER, _E.BEGIN): _S.UNDER_WAY,
        (_S.UNDER_WAY, _E.BEGIN): _S.UNDER_WAY,
        (_S.UNDER_WAY, _E.FINISH): _S.HOME,
        (_S.HOME, _E.FINISH): _S.HOME,
    },
    name="promotion",
    error=exception.ConflictError,
)
"""Every step; one that is repeated changes nothing."""


class NewHome:
    """The member that is promoted.

    :param name: of the member.
    :param stores: refs of all members that can be reached, by name; this one's are among them.
    :param former: record of the members as the former home had it last.
    """

    def __init__(self, name: str, stores: Mapping[str, RefStore], former: MembersRecord) -> None:
        self._name = name
        self._stores = stores
        self._former = former
        self._home = stores[name]
        self._token: str | None = None

    def state(self) -> HomeState:
        """Return how far it is.

        :raises FencedError: when the store is not that member, or was restored from a backup.
        :raises ConflictError: when it was given up or taken away.
        """
        return self._look()[0]

    def survivors(self) -> tuple[str, ...]:
        """Return the members that can be reached and are what they should be, this one first."""
        found = [one for one in self._stores if one != self._name and self._mark_of(one)]
        return (self._name, *found)

    def begin(self) -> None:
        """Have it be nobody's member, so that it can be made the home.

        :raises ConflictError: when it is the home, or another member is, or somebody changes it.
        """
        self.require_no_other()
        # Read before the state is judged: what another process does meanwhile ends in a conflict.
        _, token = read_members(self._home)
        _, mark_token = read_mark(self._home)
        state, mark = self._look()
        TRANSITIONS.after(state, HomeEvent.BEGIN)
        if state is HomeState.MEMBER:
            after = MemberMark(str(uuid.uuid4()), self._name, self._name, mark.generation + 1)
            self._home.swap_ref(MEMBER_REF, mark_token, after.encode())
        former = untrusted_json.load(self._former.encode(), "the record of the members")
        fields = {**former, "promotion": str(uuid.uuid4())}
        self._token = self._home.swap_ref(MEMBERS_REF, token, json.dumps(fields).encode() + b"\n")

    def require_current(self) -> None:
        """Refuse to go on once another run has begun.

        :raises ConflictError: then.
        """
        _, token = read_members(self._home)
        if self._token is None or token != self._token:
            raise exception.ConflictError(
                f"another process promotes member {self._name}, or has done so",
                hint="see to it that one does at a time, and run the command again",
            )

    def finish(self) -> MembersRecord:
        """Store the record of the members, and return it; the former home is given up in it.

        Members that cannot be reached or changed stay as they were, and are not used until this is
        repeated.

        :raises ConflictError: when this run has not begun it, or another one has since.
        """
        self.require_no_other()
        state, mark = self._look()
        TRANSITIONS.after(state, HomeEvent.FINISH)
        record, token = read_members(self._home)
        if state is HomeState.UNDER_WAY:
            self.require_current()
            record, token = MembersRecord(mark.origin, self._name, self._entries(mark)), self._token
        if record is None:
            raise exception.InternalError(f"home {self._name} has no record of the members")
        after = self._with_followers(record)
        if state is HomeState.UNDER_WAY or after != record:
            self._home.swap_ref(MEMBERS_REF, token, after.encode())
        return after

    def strangers(self, record: MembersRecord) -> tuple[str, ...]:
        """Return the members in use that do not follow this home yet."""
        return tuple(
            name
            for name, entry in record.members.items()
            if name != self._name and entry.state in USED and not self._follows(name, record)
        )

    def require_no_other(self) -> None:
        """Refuse while another store is a home, or on its way to be one.

        :raises ConflictError: then.
        """
        for name, store in self._stores.items():
            if name == self._name:
                continue
            mark, _ = read_mark(store)
            if mark is None or mark.home != name:
                continue
            if (mark.origin, name) == (self._former.origin, self._former.home):
                raise exception.ConflictError(
                    f"{name}, the home, answers: it is not lost",
                    hint="two homes would have two histories; if its content is damaged, switch "
                    "it off first",
                )
            raise exception.ConflictError(
                f"the promotion of {name} was begun",
                hint=f"repeat that one: 'acstor origin promote {name}'; if it is given up, take "
                f"{name} out of [origin] members here, and empty its store before it joins again",
            )

    def _look(self) -> tuple[HomeState, MemberMark]:
        mark, _ = read_mark(self._home)
        if mark is None or mark.name != self._name:
            raise exception.FencedError(
                f"store {self._name} is not the member of that name",
                hint="check its URL in [origin] members and that its file system is mounted",
            )
        if mark.home == self._name:
            record, _ = read_members(self._home)
            is_home = record is not None and record.home == self._name
            return (HomeState.HOME if is_home else HomeState.UNDER_WAY), mark
        entry = self._former.members.get(self._name)
        if entry is not None and entry.state not in USED:
            raise exception.ConflictError(
                f"member {self._name} is {entry.state.value}", hint="promote another member"
            )
        if self._mark_of(self._name) is None:
            raise exception.FencedError(
                f"member {self._name} is not what its copy of the members says: it was restored "
                "from a backup, or is of another origin",
                hint="promote another member",
            )
        return HomeState.MEMBER, mark

    def _mark_of(self, name: str) -> MemberMark | None:
        """Return the mark of a store that is the member which the former home or this one knew.

        None: it is another one, is behind what was known of it, was given up, or was the home.
        """
        entry = self._former.members.get(name)
        try:
            mark, _ = read_mark(self._stores[name])
            origin = self._origin()
        except exception.AcstorError:
            return None
        if entry is None or mark is None or mark.name != name or name == self._former.home:
            return None
        if entry.state not in USED or mark.generation < entry.generation:
            return None
        is_former = (mark.origin, mark.home) == (self._former.origin, self._former.home)
        is_new = (mark.origin, mark.home) == (origin, self._name)
        return mark if is_former or is_new else None

    def _origin(self) -> str | None:
        """Return the id of the origin that this one is the home of, or will be."""
        mark, _ = read_mark(self._home)
        return mark.origin if mark is not None and mark.home == self._name else None

    def _entries(self, mark: MemberMark) -> dict[str, MemberEntry]:
        entries = dict(self._former.members)
        lost = entries[self._former.home]
        entries[self._former.home] = MemberEntry(lost.generation, MemberState.FAILED)
        entries[self._name] = MemberEntry(mark.generation, MemberState.ACTIVE)
        return entries

    def _with_followers(self, record: MembersRecord) -> MembersRecord:
        """Have the others that can be reached follow this home."""
        for name in self.survivors():
            entry = record.members.get(name)
            if name == self._name or entry is None or entry.state not in USED:
                continue
            # One that cannot be changed stays a stranger, and is told of.
            with contextlib.suppress(exception.AcstorError):
                generation = max(self._have_follow(name, record), entry.generation)
                record = record.with_member(name, MemberEntry(generation, entry.state))
        return record

    def _have_follow(self, name: str, record: MembersRecord) -> int:
        """Have a member follow this home; return its generation."""
        store = self._stores[name]
        mark, token = read_mark(store)
        if mark is None:
            raise exception.FencedError(f"store {name} is no member any more")
        if mark.origin != record.origin:
            after = MemberMark(record.origin, name, self._name, mark.generation)
            store.swap_ref(MEMBER_REF, token, after.encode())
        # For a promotion of this one, should the new home be lost before its first pass of copies.
        copy = RefCopy(MEMBERS_REF, record.encode()).encode()
        ref_replacement.replace(store, copy_name(MEMBERS_REF), copy)
        return mark.generation

    def _follows(self, name: str, record: MembersRecord) -> bool:
        if name not in self._stores:
            return False
        try:
            mark, _ = read_mark(self._stores[name])
        except exception.AcstorError:
            return False
        return mark is not None and (mark.origin, mark.home) == (record.origin, record.home)
