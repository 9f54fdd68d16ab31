"""An origin in several stores, as one: the driver of ``members:`` URLs."""

import contextlib
import functools
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.pair import OriginPair
from acstor.origin.replicated.checked_store import CheckedStore
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.members import MemberAddress, addresses_of
from acstor.origin.replicated.objects import Check, ReplicatedObjects, accept
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.refs import HomeRefs
from acstor.origin.replicated.set_placement import LOG_FOLDER, SetPlacement
from acstor.origin.replicated.sync.change_log import ChangeLogWriter
from acstor.origin.replicated.sync.log_keeper import LogKeeper
from acstor.origin.replicated.view import REFRESH_SECONDS, MembersView

MEMBER_SECONDS = 15.0
"""Longest time of a call of a member, without what a large object takes on top."""
DISK = "images"
"""Name of the disk under which change logs keep what is of no volume."""

OpenStore = Callable[[str], base.Origin]


class UsedMembers(Mapping[str, Member]):
    """The members whose answers count at the moment, in the order of the configuration.

    One that the home knows and this host's configuration does not is there, too, and cannot be
    asked: so nothing that it may have is taken for absent.

    :param members: all that the configuration has.
    :param view: what the home says.
    """

    def __init__(self, members: Sequence[Member], view: MembersView) -> None:
        self._members = {member.name: member for member in members}
        self._view = view

    def __getitem__(self, name: str) -> Member:
        """Return a member, also one that is not used any more: who asks may have begun before."""
        found = self._members.get(name)
        if found is None:
            if self._view.state(name) is None:
                raise KeyError(name)
            unknown = CheckedStore(name, _not_configured(name), self._view)
            found = self._members.setdefault(name, Member(name, unknown, MEMBER_SECONDS))
        return found

    def __contains__(self, name: object) -> bool:
        """Return whether the answers of a member count."""
        return name in self._view.used

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        used, known = self._view.used, tuple(self._members)
        yield from (name for name in known if name in used)
        yield from (name for name in used if name not in known)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._view.used)

    def close(self) -> None:
        """Close all, also those that are not used."""
        with contextlib.ExitStack() as closing:
            for member in tuple(self._members.values()):
                closing.callback(member.close)


class ReplicatedOrigin(OriginPair):
    """Objects in all members, refs in the home.

    :param addresses: members that the configuration has, the home first.
    :param open_store: opens the store at a URL.
    :param check: compares whole objects with their names.
    :raises UnavailableError: when the home cannot be reached.
    :raises ConfigurationError: when the first is not the home, or has no members.
    """

    def __init__(
        self,
        addresses: Sequence[MemberAddress],
        open_store: OpenStore,
        *,
        check: Check = accept,
        seconds_max: float = MEMBER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home_store = open_store(addresses[0].url)
        try:
            self.view = MembersView(addresses[0].name, self._home_store, clock)
        except BaseException:
            self._home_store.close()
            raise
        members = [
            Member(
                one.name,
                CheckedStore(one.name, functools.partial(open_store, one.url), self.view, clock),
                seconds_max,
                clock=clock,
            )
            for one in addresses
        ]
        self.members = UsedMembers(members, self.view)
        self.placement = SetPlacement(self.view)
        self.log = ChangeLogWriter(self.members, disk_of, clock=clock)
        self._keeper = LogKeeper(self.log)
        self.replicated = ReplicatedObjects(
            self.members,
            self.placement,
            check=check,
            noted=self._keeper.note,
            power=self._power_state,
        )
        self._clock = clock
        self._look_at = clock() + REFRESH_SECONDS
        super().__init__(self.replicated, HomeRefs(self._home_store))

    @classmethod
    def from_url(cls, url: urllib.parse.SplitResult) -> "ReplicatedOrigin":
        """Open what :func:`.members.url_of` names.

        :raises ConfigurationError: when it is malformed.
        """
        return cls(addresses_of(url), open_member)

    def of_member(self, name: str | None) -> base.ObjectStore:
        """Return the store of one member alone, after a look at its state where one is due."""
        # Who goes on in a member while the home is away has to be able to.
        with contextlib.suppress(exception.AcstorError):
            self.view.refresh()
        return super().of_member(name)

    def _power_state(self, name: str) -> PowerState:
        """Return the power state of a member; have the home be asked where that is due.

        By a thread of the home's, and nobody waits for it: who only reads from other members has to
        hear that one of them sleeps, and is not to depend on the home.
        """
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + REFRESH_SECONDS
            self.members[self.view.home].run_aside(self.view.refresh_power)
        return self.view.power_state(name)

    def close(self) -> None:
        """Store what is left of the change logs, and close all stores."""
        try:
            self._keeper.close()
        finally:
            self.members.close()
            self._home_store.close()


def disk_of(key: str) -> str:
    """Return the disk under which change logs keep an object: the id of a volume, of its logs."""
    return key.split("/")[1] if key.startswith(LOG_FOLDER) else DISK


def open_member(url: str) -> base.Origin:
    """Open the store of a member, whose calls fail at once: another member is asked then.

    :raises InvalidError: when there is none.
    """
    from acstor.origin.opening import open_driver  # which finds this driver

    return open_driver(url)


def _not_configured(name: str) -> Callable[[], base.Origin]:
    def refuse() -> base.Origin:
        raise exception.UnavailableError(
            f"member {name} of the origin is not in [origin] members of this host",
            hint=f"add {name}=URL there and restart the service",
        )

    return refuse
