"""Making stores the members of an origin, and telling whether they still are.

Nothing here decides by time, and nothing is promoted: a home is what every member says it is.
"""

import uuid
from collections.abc import Mapping

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
from acstor.origin.replicated.states import USED, MemberEvent, MemberState, state_after


class NoMemberError(exception.FencedError):
    """A store carries no mark: it is not mounted, or was never a member."""


class Membership:
    """The members of one origin.

    :param home: name of the home, which must be among the stores.
    :param stores: refs of the members by name: all that the configuration has.
    """

    def __init__(self, home: str, stores: Mapping[str, RefStore]) -> None:
        self._home = home
        self._stores = stores

    def create(self) -> MembersRecord:
        """Make the stores the members of a new origin; repeating it goes on where it was cut off.

        The home's refs may be in use: an origin gets members so. The home's mark is made first, and
        is what a repeated call takes the id of the origin from. The others must be no members yet,
        and are to be filled.

        :raises ConflictError: when a store is a member of another origin, or by another name.
        """
        found, _ = read_members(self._stores[self._home])
        if found is not None:
            return found
        mark, _ = read_mark(self._stores[self._home])
        origin = mark.origin if mark is not None else str(uuid.uuid4())
        for name in sorted(self._stores, key=lambda name: name != self._home):
            self._mark(MemberMark(origin, name, self._home, 1))
        entries = {name: MemberEntry(1, MemberState.JOINING) for name in self._stores}
        entries[self._home] = MemberEntry(1, MemberState.ACTIVE)
        record = MembersRecord(origin, self._home, entries)
        self._stores[self._home].swap_ref(MEMBERS_REF, None, record.encode())
        return record

    def check(self) -> tuple[MembersRecord, dict[str, exception.AcstorError]]:
        """Return what the home says, and of each store that is not to be used the reason.

        A store that cannot be reached is among them: without its mark nobody knows what it is.

        :raises UnavailableError: when the home cannot be reached.
        :raises ConfigurationError: when the home that is configured is not the members' home, or
            has no members.
        """
        record = read_record(self._home, self._stores[self._home])
        refused: dict[str, exception.AcstorError] = {}
        for name in self._stores:
            try:
                require_member(record, name, self._stores[name])
            except exception.AcstorError as error:
                refused[name] = error
        if self._home in refused:
            raise refused[self._home]
        return record, refused

    def advance(self, name: str) -> int:
        """Have a member's generation grow, in the member and then in the home; return it.

        Killed in between, the member is ahead by one; the next call has the home follow.

        :raises FencedError: when the member is refused, see :meth:`check`.
        :raises ConflictError: when another process does the same; repeating helps.
        """
        home = self._stores[self._home]
        record, token = self._record()
        mark = require_member(record, name, self._stores[name])
        if mark.generation == record.members[name].generation:
            _, mark_token = read_mark(self._stores[name])
            mark = MemberMark(mark.origin, name, mark.home, mark.generation + 1)
            self._stores[name].swap_ref(MEMBER_REF, mark_token, mark.encode())
        entry = MemberEntry(mark.generation, record.members[name].state)
        home.swap_ref(MEMBERS_REF, token, record.with_member(name, entry).encode())
        return mark.generation

    def join(self, name: str) -> MembersRecord:
        """Make one more store a member; it is filled before anything is assigned to it.

        :raises ConflictError: when it is a member of another origin, or its name was used before.
        """
        record, token = self._record()
        if name in record.members:
            raise exception.ConflictError(
                f"{name} is the name of a member already, or was",
                hint="give the store a name that no member ever had",
            )
        self._mark(MemberMark(record.origin, name, record.home, 1))
        state = state_after(None, MemberEvent.JOIN)
        after = record.with_member(name, MemberEntry(1, state))
        self._stores[self._home].swap_ref(MEMBERS_REF, token, after.encode())
        return after

    def change(self, name: str, event: MemberEvent) -> MembersRecord:
        """Change the state of a member.

        :raises NotFoundError: when there is no such member.
        :raises ConflictError: when its state does not allow it, it is the home and would not be
            used any more, or another process changed something meanwhile.
        """
        record, token = self._record()
        if name not in record.members:
            raise exception.NotFoundError(f"the origin has no member {name}")
        entry = record.members[name]
        state = state_after(entry.state, event)
        if name == record.home and state not in {MemberState.ACTIVE, entry.state}:
            raise exception.ConflictError(
                f"{name} is the home of the refs", hint="the home cannot be taken away"
            )
        after = record.with_member(name, MemberEntry(entry.generation, state))
        self._stores[self._home].swap_ref(MEMBERS_REF, token, after.encode())
        return after

    def _record(self) -> tuple[MembersRecord, str | None]:
        record, token = read_members(self._stores[self._home])
        if record is None:
            raise exception.NotFoundError(f"{self._home} is the home of no members")
        return record, token

    def _mark(self, mark: MemberMark) -> None:
        """Have a store carry a mark; one that is there already must say the same."""
        store = self._stores[mark.name]
        found, _ = read_mark(store)
        if found is None:
            store.swap_ref(MEMBER_REF, None, mark.encode())
        elif found != mark:
            raise exception.ConflictError(
                f"store {mark.name} is member {found.name} of origin {found.origin} already",
                hint="a store is a member of one origin, by one name; name an empty store",
            )


def read_record(name: str, refs: RefStore) -> MembersRecord:
    """Return what the home says of all members.

    :param name: of the member that is configured first.
    :param refs: its refs.
    :raises UnavailableError: when it cannot be reached.
    :raises ConfigurationError: when it is not the members' home, or has no members.
    """
    record, _ = read_members(refs)
    if record is None:
        raise exception.ConfigurationError(
            f"member {name}, which is configured first, is the home of no members",
            hint="let the home be the first of [origin] members, as on all other hosts; a new "
            "origin of several is made with 'acstor origin create'",
        )
    if record.home != name:
        raise exception.ConfigurationError(
            f"the home of the refs is {record.home}, and {name} is configured as such",
            hint=f"name {record.home} first in [origin] members",
        )
    return record


def require_member(
    record: MembersRecord, name: str, refs: RefStore, *, is_fresh: bool = True
) -> MemberMark:
    """Return the mark of a store that is the member it should be.

    :param record: what the home says.
    :param is_fresh: False if it may have said more since: generations go on to grow meanwhile.
    :param name: of the member that the store is configured as.
    :raises FencedError: when it is not, or is behind the home.
    """
    entry = record.members.get(name)
    mark, _ = read_mark(refs)
    if entry is None or mark is None:
        raise NoMemberError(
            f"store {name} is no member of this origin",
            hint="check its URL and that its file system is mounted, or have it join",
        )
    if (mark.origin, mark.name, mark.home) != (record.origin, name, record.home):
        raise exception.FencedError(
            f"the store configured as {name} is member {mark.name} of origin {mark.origin}",
            hint="check the URLs of [origin] members",
        )
    if entry.state not in USED:
        raise exception.FencedError(
            f"member {name} is {entry.state.value}", hint="its name cannot be used again"
        )
    is_ahead = is_fresh and mark.generation > entry.generation + 1
    if is_ahead or mark.generation < entry.generation:
        raise exception.FencedError(
            f"member {name} has generation {mark.generation}, and {entry.generation} is the "
            "one that the home knows: it was restored from a backup, or the home was",
            hint="empty the store and have it join by another name",
        )
    return mark
