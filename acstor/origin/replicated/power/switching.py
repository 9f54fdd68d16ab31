"""Steps of members that sleep and wake, by the process that leads.

Each step reads the record in the home, and changes it by a swap before anything else happens; it is
repeated as it is where the process dies. A machine is switched by nobody but who has swapped in the
attempt. What another process has begun is waited for as long as it may take, by this process's own
clock: clocks of two machines are never compared. Only how long a member is on or off at least goes
by the time in the record, since nothing but flapping depends on it.
"""

import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.backoff import BackOff, jittered
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.member_calls.refs import MemberRefs
from acstor.origin.replicated.membership import NoMemberError, require_member
from acstor.origin.replicated.power.drivers.base import Machine, PowerDriver
from acstor.origin.replicated.power.owed_deletions import OwedDeletions
from acstor.origin.replicated.power.record import (
    AWAKE,
    PowerEntry,
    PowerRecord,
    read_power,
    swap_power,
)
from acstor.origin.replicated.power.states import PowerEvent, PowerState
from acstor.origin.replicated.sole_objects import find_sole
from acstor.origin.replicated.sync.keeping import MemberKeeping

LOG = logging.getLogger(__name__)

RETRY = BackOff(first=30.0, longest=600.0)
"""Delays after attempts that the driver refused."""
BEGIN_SECONDS = 10.0
"""Longest time from the swap of an attempt to the driver's call: who was stopped begins none."""
STRAY_SECONDS = 3600.0
"""Time after a change of its state in which a member whose machine is off is switched on: a call to
switch it off may have come late. Who switches a machine off later means it."""


@dataclasses.dataclass(frozen=True, slots=True)
class SwitchTimes:
    """Bounds of switching."""

    attempts: int = 3
    """Attempts of each switch; then an operator is needed."""
    settle_seconds: float = 300.0
    """Time that a machine has to be off, or to answer, after an attempt; longer than a call of a
    driver takes."""
    hosts_seconds: float = 150.0
    """Time from the record's change to the first attempt to switch off: hosts look at the home once
    a minute, and shall not ask what is off."""
    quiesce_seconds: float = 14400.0
    """Longest time for copying away what a member alone has."""


Switched = Callable[[str, str, bool], None]
"""Is told of attempts: the member, ``on`` or ``off``, and whether the driver took it."""


class PowerSwitching:
    """Makes one step for each member that is on its way, in each pass.

    :param origin: the members.
    :param keeping: synchronises them; its pass comes first.
    :param drivers: of the members' machines; of others nobody switches any.
    :param leader: name of this process.
    :param times: bounds.
    :param switched: is told of attempts.
    :param is_written: says whether volumes may write to a member, as of the last synchronisation.
    :param clock: monotonic seconds.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        origin: ReplicatedOrigin,
        keeping: MemberKeeping,
        drivers: Mapping[str, PowerDriver],
        leader: str,
        *,
        times: SwitchTimes | None = None,
        switched: Switched = lambda member, to, is_done: None,
        is_written: Callable[[str], bool] = lambda member: False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._origin = origin
        self._keeping = keeping
        self._drivers = drivers
        self._leader = leader
        self._times = times or SwitchTimes()
        self._switched = switched
        self._is_written = is_written
        self._clock = clock
        self._now = now
        self._owed = OwedDeletions(
            origin.members[origin.view.home], origin.members.__getitem__, clock
        )
        self._seen: dict[str, tuple[tuple[PowerState, int, str], float, float]] = {}
        """Of each member what its entry was, since when it is so, and how long that is waited."""
        self.record: PowerRecord = PowerRecord({})
        self._token: str | None = None
        self.error = ""
        """Reason for which a step of the last pass was not made; empty: none was left out."""

    def read(self) -> PowerRecord:
        """Read the record, and forget members that were taken away.

        :raises UnavailableError: when the home cannot be reached.
        :raises ConflictError: when another process changes it at this moment.
        """
        self._origin.view.refresh(is_due=True)
        self.record, self._token = read_power(self._origin.refs)
        gone = self.record.members.keys() - set(self._origin.view.used)
        if gone:
            self._swap(self.record.without(gone))
        return self.record

    def run(self) -> None:
        """Make the steps that are due; :meth:`read` comes first.

        :raises UnavailableError: when the home cannot be reached.
        :raises ConflictError: when another process changes the record; the next pass reads it.
        """
        self.error = ""
        steps: Mapping[PowerState, Callable[[str, PowerEntry], None]] = {
            PowerState.ACTIVE: self._serve,
            PowerState.QUIESCING: self._quiesce,
            PowerState.SWITCHING_OFF: self._switch_off,
            PowerState.WAKING: self._wake,
            PowerState.CATCHING_UP: self._catch_up,
            PowerState.STUCK: self._look_again,
        }
        for name in self._origin.view.used:
            entry = self.record.entry(name)
            step = steps.get(entry.state)
            if name == self._origin.view.home or step is None:
                continue
            try:
                step(name, entry)
            except exception.ConflictError:
                raise
            except exception.AcstorError as error:
                self.error = f"member {name}: {exception.one_line(error)}"
                LOG.warning("the power of member %s: %s", name, exception.one_line(error))

    def change(self, name: str, event: PowerEvent, alarm: str | None = None) -> None:
        """Change the state of a member.

        :param alarm: None: as before.
        :raises ConflictError: when its state does not allow it, or another process changes it.
        """
        before = self.record.entry(name)
        after = before.after(event, self._now(), alarm)
        self._swap(self.record.with_entry(name, after))
        LOG.info("member %s is %s (%s, before %s)", name, after.state, event, before.state)
        if alarm:
            LOG.error("member %s: %s", name, alarm)

    # Steps

    def _serve(self, name: str, entry: PowerEntry) -> None:
        """Have a member that is in use lose what was deleted while others took it for asleep."""
        if name in self._keeping.away:
            is_late = self._now() - entry.since >= STRAY_SECONDS
            if not is_late and self._machine(name) is Machine.OFF:
                self.change(name, PowerEvent.FOUND_OFF)
        elif entry != AWAKE:
            self._owed.settle({name}, self._origin.view.used)

    def _quiesce(self, name: str, entry: PowerEntry) -> None:
        """Wait until all that a member has is elsewhere."""
        waited, _ = self._waited(name, entry, self._times.quiesce_seconds)
        keeping = self._keeping
        is_copied = keeping.is_compared(name) and not keeping.owes(name)
        is_left = is_copied and not self._is_written(name)
        if is_left and name not in keeping.away and not find_sole(self._origin, name).count:
            # So that a store that is older than its sleep is refused when it wakes.
            keeping.advance(name)
            self.change(name, PowerEvent.EMPTIED)
        elif waited >= self._times.quiesce_seconds:
            alarm = "it stays on: what it alone has cannot be copied to others"
            self.change(name, PowerEvent.WAKE, alarm)

    def _switch_off(self, name: str, entry: PowerEntry) -> None:
        if self._machine(name) is Machine.OFF:
            self.change(name, PowerEvent.SWITCHED_OFF)
        elif not entry.attempts and self._is_written(name):
            # One went there before its host knew that the member goes; no host does any more.
            self.change(name, PowerEvent.WAKE)
        elif self._attempt(name, entry, "off", self._times.hosts_seconds):
            text = f"it was not off after {entry.attempts} attempts, and is woken"
            self.change(name, PowerEvent.GIVEN_UP, text)

    def _wake(self, name: str, entry: PowerEntry) -> None:
        try:
            is_there = self._answers(name)
        except exception.FencedError as error:
            self.change(name, PowerEvent.GIVEN_UP, exception.one_line(error))
            return
        if is_there:
            self._answered(name)
        elif self._attempt(name, entry, "on", 0.0):
            text = f"it does not answer after {entry.attempts} attempts to switch it on"
            self.change(name, PowerEvent.GIVEN_UP, text)

    def _look_again(self, name: str, entry: PowerEntry) -> None:
        """See whether somebody has mended a member that was given up."""
        del entry
        try:
            is_there = self._answers(name)
        except exception.FencedError:
            return  # the alarm says so
        if is_there:
            self._answered(name)

    def _catch_up(self, name: str, entry: PowerEntry) -> None:
        del entry
        left = self._owed.settle({name}, self._origin.view.used).get(name, 0)
        keeping = self._keeping
        is_equal = keeping.is_compared(name) and not keeping.lacks(name)
        if is_equal and not left and name not in keeping.away:
            self.change(name, PowerEvent.CAUGHT_UP)

    def _answered(self, name: str) -> None:
        """Have a member that is back lose what was deleted, before it is compared with others."""
        if not self._owed.settle({name}, self._origin.view.used).get(name, 0):
            is_given_up = self.record.state(name) is PowerState.STUCK
            self.change(name, PowerEvent.ANSWERS, "" if is_given_up else None)

    # Machines

    def _answers(self, name: str) -> bool:
        """Return whether a member's store is there.

        :raises FencedError: when it is another one, or behind what it has acknowledged.
        """
        refs = MemberRefs(self._origin.members[name])
        try:
            require_member(self._origin.view.record, name, refs, is_fresh=False)
        except exception.AcstorError as error:
            # The member's store looks itself, and says that it is not used, whatever is the reason.
            cause = error if isinstance(error, exception.FencedError) else error.__cause__
            if isinstance(cause, exception.FencedError) and not isinstance(cause, NoMemberError):
                raise cause from error
            LOG.debug("member %s does not answer yet: %s", name, exception.one_line(error))
            return False
        return True

    def _machine(self, name: str) -> Machine | None:
        """Return the state of a member's machine, None where nobody can say."""
        driver = self._drivers.get(name)
        try:
            return None if driver is None else driver.state()
        except exception.AcstorError as error:
            self.error = f"member {name}: {exception.one_line(error)}"
            LOG.warning("the machine of member %s: %s", name, exception.one_line(error))
            return None

    def _waited(self, name: str, entry: PowerEntry, wait: float) -> tuple[float, float]:
        """Return for how long an entry has been as it is, and how long that is waited for.

        :param wait: seconds, of an entry that is seen for the first time.
        """
        key = (entry.state, entry.attempts, entry.attempt)
        seen = self._seen.get(name)
        if seen is None or seen[0] != key:
            seen = self._seen[name] = key, self._clock(), wait
        return self._clock() - seen[1], seen[2]

    def _attempt(self, name: str, entry: PowerEntry, to: str, first_wait: float) -> bool:
        """Begin the next attempt to switch a machine where it is due; return whether all failed.

        :param to: ``on`` or ``off``.
        :param first_wait: seconds before the first attempt.
        """
        wait = jittered(self._times.settle_seconds) if entry.attempts else first_wait
        waited, wait = self._waited(name, entry, wait)
        if waited < wait:
            return False
        if entry.attempts >= self._times.attempts:
            return True
        attempt = f"{self._leader}/{secrets.token_hex(8)}"
        begun = dataclasses.replace(entry, attempts=entry.attempts + 1, attempt=attempt[-300:])
        at = self._clock()
        self._swap(self.record.with_entry(name, begun))
        if self._clock() - at > BEGIN_SECONDS:
            LOG.warning("member %s is not switched %s: this process was stopped", name, to)
            return False
        error = self._switch(name, to)
        wait = jittered(self._times.settle_seconds)
        if error is not None:
            wait = RETRY.seconds(begun.attempts)
        self._seen[name] = (begun.state, begun.attempts, begun.attempt), self._clock(), wait
        return False

    def _switch(self, name: str, to: str) -> exception.AcstorError | None:
        """Have a driver switch a machine; return why it did not."""
        driver = self._drivers.get(name)
        if driver is None:
            LOG.warning("member %s has no driver: switch it %s by hand", name, to)
            return None
        LOG.info("member %s is switched %s", name, to)
        try:
            (driver.switch_on if to == "on" else driver.switch_off)()
        except exception.AcstorError as error:
            LOG.warning("member %s, switching it %s: %s", name, to, exception.one_line(error))
            self._switched(name, to, False)
            return error
        self._switched(name, to, True)
        return None

    def _swap(self, record: PowerRecord) -> None:
        self._token = swap_power(self._origin.refs, self._token, record)
        self.record = record
        self._origin.view.refresh(is_due=True)
