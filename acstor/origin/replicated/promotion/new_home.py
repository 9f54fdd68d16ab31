"""A member that becomes the home of the refs.

::

              begin                   finish
    MEMBER ----------> UNDER_WAY ----------------> HOME
                         |    ^                    |  ^
                         '----' begin              '--' finish

``begin`` gives the member's mark another origin's id: whoever has the former home, or its record of
the members, refuses the member from then on, so that nothing of two homes is ever mixed. Until
``finish`` stores the record of the members, nobody can open the member as a home either. What the
refs name is written in between (acstor/repository/copying/promotion.py).

Nothing here decides that a home is lost. An operator does, and promotes one member, once.
"""

import enum
import uuid
from collections.abc import Iterable, Mapping

from acstor import exception
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

    def state(self) -> HomeState:
        """Return how far it is.

        :raises FencedError: when the store is not that member, or was restored from a backup.
        :raises ConflictError: when it was given up or taken away.
        """
        return self._look()[0]

    def begin(self) -> None:
        """Have it be nobody's member, so that it can be made the home.

        :raises ConflictError: when it is the home, or somebody changes its mark; see also above.
        """
        state, mark = self._look()
        TRANSITIONS.after(state, HomeEvent.BEGIN)
        if state is HomeState.MEMBER:
            _, token = read_mark(self._stores[self._name])
            mark = MemberMark(str(uuid.uuid4()), self._name, self._name, mark.generation + 1)
            self._stores[self._name].swap_ref(MEMBER_REF, token, mark.encode())

    def finish(self) -> MembersRecord:
        """Store the record of the members, and return it; the former home is given up in it.

        Members that cannot be reached stay as they were and are not used, until this is repeated.

        :raises ConflictError: when it was not begun, or another process does the same.
        """
        state, mark = self._look()
        TRANSITIONS.after(state, HomeEvent.FINISH)
        home = self._stores[self._name]
        found, token = read_members(home)
        record = found or MembersRecord(mark.origin, self._name, self._entries(mark))
        record = self._with_followers(record)
        if record != found:
            home.swap_ref(MEMBERS_REF, token, record.encode())
        return record

    def strangers(self, record: MembersRecord) -> tuple[str, ...]:
        """Return the members in use that do not follow this home yet."""
        return tuple(
            name
            for name, entry in record.members.items()
            if entry.state in USED and not self._follows(name, record)
        )

    def _look(self) -> tuple[HomeState, MemberMark]:
        store = self._stores[self._name]
        mark, _ = read_mark(store)
        if mark is None or mark.name != self._name:
            raise exception.FencedError(
                f"store {self._name} is not the member of that name",
                hint="check its URL in [origin] members and that its file system is mounted",
            )
        if mark.home == self._name:
            is_home = read_members(store)[0] is not None
            return (HomeState.HOME if is_home else HomeState.UNDER_WAY), mark
        self._require_member(mark)
        return HomeState.MEMBER, mark

    def _require_member(self, mark: MemberMark) -> None:
        """Refuse what is not the member that the former home knew."""
        entry = self._former.members.get(self._name)
        is_of_it = (mark.origin, mark.home) == (self._former.origin, self._former.home)
        if entry is None or not is_of_it or mark.generation < entry.generation:
            raise exception.FencedError(
                f"member {self._name} is not what its copy of the members says: it was restored "
                "from a backup, or is of another origin",
                hint="promote another member",
            )
        if entry.state not in USED:
            raise exception.ConflictError(
                f"member {self._name} is {entry.state.value}", hint="promote another member"
            )

    def _entries(self, mark: MemberMark) -> dict[str, MemberEntry]:
        entries = dict(self._former.members)
        lost = entries[self._former.home]
        entries[self._former.home] = MemberEntry(lost.generation, MemberState.FAILED)
        entries[self._name] = MemberEntry(mark.generation, MemberState.ACTIVE)
        return entries

    def _with_followers(self, record: MembersRecord) -> MembersRecord:
        """Have the others that can be reached follow this home."""
        for name in self._followers(record):
            mark, token = read_mark(self._stores[name])
            if mark is None or (mark.origin, mark.name) != (self._former.origin, name):
                continue
            after = MemberMark(record.origin, name, self._name, mark.generation)
            self._stores[name].swap_ref(MEMBER_REF, token, after.encode())
        for name in self._followers(record):
            mark, _ = read_mark(self._stores[name])
            if mark is not None and mark.origin == record.origin:
                state = record.members[name].state
                record = record.with_member(name, MemberEntry(mark.generation, state))
        return record

    def _followers(self, record: MembersRecord) -> Iterable[str]:
        return [
            name
            for name in self._stores
            if name != self._name and name in record.members and record.members[name].state in USED
        ]

    def _follows(self, name: str, record: MembersRecord) -> bool:
        store = self._stores.get(name)
        if store is None:
            return False
        mark, _ = read_mark(store)
        return mark is not None and (mark.origin, mark.home) == (record.origin, record.home)
