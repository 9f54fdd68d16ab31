"""The record of the members, as this process knows it."""

import logging
import threading
import time
from collections.abc import Callable

from acstor import exception
from acstor.origin.base import Ref, RefStore
from acstor.origin.replicated.member_records import MEMBERS_REF, MembersRecord
from acstor.origin.replicated.membership import read_record
from acstor.origin.replicated.power.record import ALL_AWAKE, POWER_REF, PowerRecord
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.states import USED, MemberState

LOG = logging.getLogger(__name__)

REFRESH_SECONDS = 10.0
"""Time after which the home is looked at again, by the next call that goes to it."""


class MembersView:
    """The record of the members, read again now and then.

    :param name: of the home.
    :param home: its refs.
    :param clock: monotonic seconds.
    :raises UnavailableError: when the home cannot be reached.
    :raises ConfigurationError: when it is not the members' home.
    """

    def __init__(
        self, name: str, home: RefStore, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.home = name
        self._refs = home
        self._clock = clock
        self._lock = threading.Lock()
        self._ref: Ref | None = home.get_ref(MEMBERS_REF)
        self._record = read_record(name, home)
        self._power_ref: Ref | None = None
        self._power = ALL_AWAKE
        self._read_power()
        self._due_at = clock() + REFRESH_SECONDS

    @property
    def record(self) -> MembersRecord:
        """The last that is known; nothing is read."""
        return self._record

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the members whose answers count."""
        return tuple(name for name, one in self._record.members.items() if one.state in USED)

    def state(self, name: str) -> MemberState | None:
        """Return the state of a member; None: the home knows none of that name."""
        entry = self._record.members.get(name)
        return None if entry is None else entry.state

    @property
    def power(self) -> PowerRecord:
        """Power of the members, as it is known; nothing is read."""
        return self._power

    def power_state(self, name: str) -> PowerState:
        """Return the power state of a member; the home never sleeps."""
        return PowerState.ACTIVE if name == self.home else self._power.state(name)

    def refresh(self, *, is_due: bool = False) -> None:
        """Read the record again.

        :param is_due: True to do so now; else once :data:`REFRESH_SECONDS` are over.
        :raises UnavailableError: when the home cannot be reached; what was known stays known.
        """
        if not is_due and self._clock() < self._due_at:
            return
        if not self._lock.acquire(blocking=is_due):
            return
        try:
            self._due_at = self._clock() + REFRESH_SECONDS
            self._read()
        finally:
            self._lock.release()

    def _read(self) -> None:
        ref = self._refs.refresh_ref(MEMBERS_REF, self._ref)
        if ref is None:
            raise exception.UnavailableError(
                f"{self.home} is the home of no members any more",
                hint="check its URL in [origin] members and that its file system is mounted",
            )
        if ref is not self._ref:
            record = MembersRecord.parse(ref.content)
            if record.origin != self._record.origin:
                raise exception.UnavailableError(
                    f"{self.home} is the home of another origin, {record.origin}, now",
                    hint="restart the service once it is the right one",
                )
            self._ref, self._record = ref, record
        self._read_power()

    def refresh_power(self) -> None:
        """Read again who sleeps, and nothing else, unless somebody reads just now.

        :raises UnavailableError: when the home cannot be reached.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._read_power()
            finally:
                self._lock.release()

    def _read_power(self) -> None:
        ref = self._refs.refresh_ref(POWER_REF, self._power_ref)
        if ref is self._power_ref:
            return
        try:
            self._power = ALL_AWAKE if ref is None else PowerRecord.parse(ref.content)
        except exception.AcstorError as error:
            # Members that sleep are then asked in vain: unavailable, as those that are away.
            LOG.error("who sleeps is not known: %s", exception.one_line(error))
            self._power = ALL_AWAKE
        self._power_ref = ref
