"""A cloud for tests whose members sleep: stores, machines that make them vanish, leaders."""

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any

from acstor import exception
from acstor.origin import base
from acstor.origin.memory import MemoryOrigin
from acstor.origin.pair import ForwardingOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.members_status import MembersStatus
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.power.budgets.base import Unit
from acstor.origin.replicated.power.budgets.kept import KeptBudget
from acstor.origin.replicated.power.budgets.memory import MemoryBudget
from acstor.origin.replicated.power.deciding import PowerSettings, load_policy
from acstor.origin.replicated.power.drivers.base import Machine
from acstor.origin.replicated.power.drivers.faulty import FaultyDriver
from acstor.origin.replicated.power.drivers.memory import MemoryDriver
from acstor.origin.replicated.power.machines import MachineSettings
from acstor.origin.replicated.power.power_keeping import PowerKeeping
from acstor.origin.replicated.power.record import Desired, PowerEntry, read_power, swap_power
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.power.switching import PowerSwitching, SwitchTimes
from acstor.origin.replicated.states import MemberEvent
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.repository.volumes.log_places import RecordedLogs
from testbed.doubles.virtual_time import VirtualTime

CONTENTS = [random.Random(number).randbytes(100 + number) for number in range(4)]
PACKS = {f"packs/{hashlib.sha256(one).hexdigest()}": one for one in CONTENTS}
WATTS = {"home": 300.0, "near": 200.0, "far": 100.0}
TIMES = SwitchTimes(attempts=2, settle_seconds=300.0, hosts_seconds=150.0, quiesce_seconds=7200.0)


def check(key: str, content: memoryview, others: base.ObjectStore) -> None:
    """Compare a pack with its name; logs are what they are."""
    if key.startswith("packs/") and hashlib.sha256(content).hexdigest() != key.rsplit("/", 1)[1]:
        raise exception.CorruptError(f"{key} is not what its name says")


class Powered(ForwardingOrigin):
    """A store that is there while its machine is on.

    :param before: called with the name of each call that changes something, before it.
    """

    def __init__(
        self, inner: base.Origin, machine: MemoryDriver, before: Callable[[str], None]
    ) -> None:
        self.inner = inner
        self.machine = machine
        self.before = before
        self.touched_while_off = 0

    def _there(self) -> base.Origin:
        if self.machine.machine is not Machine.ON:
            self.touched_while_off += 1
            raise exception.UnavailableError("its machine is off")
        return self.inner

    @property
    def objects(self) -> base.ObjectStore:
        return self._there()

    @property
    def refs(self) -> base.RefStore:
        return self._there()

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        self.before(f"put {key}")
        return super().put_if_absent(key, buffers)

    def delete(self, key: str) -> bool:
        self.before(f"delete {key}")
        return super().delete(key)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        self.before(f"swap {name}")
        found = super().swap_ref(name, expected, content)
        self.before(f"swapped {name}")
        return found

    def close(self) -> None:
        """Stay open: another process of the test has it."""


class Sleepers:
    """Three members, the machines of two of which can be switched, and a process that leads."""

    def __init__(self, names: Sequence[str] = ("home", "near", "far")) -> None:
        self.clock = VirtualTime(1e6)
        self.before: Callable[[str], None] = lambda call: None
        self.machines = {name: MemoryDriver() for name in names}
        self.drivers = {name: FaultyDriver(self.machines[name]) for name in names if name != "home"}
        self.stores = {
            name: Powered(MemoryOrigin(), self.machines[name], lambda call: self.before(call))
            for name in names
        }
        self.membership = Membership("home", self.stores)
        self.membership.create()
        for name in names:
            if name != "home":
                self.membership.change(name, MemberEvent.FILLED)
        self.settings = PowerSettings()
        self.source: MemoryBudget | None = None
        self.journal: list[dict[str, Any]] = []
        self.lead()

    @property
    def home(self) -> base.Origin:
        return self.stores["home"].inner

    def lead(self, leader: str = "leader") -> None:
        """Have another process lead."""
        self.origin, self.keeping, self.switching, self.power = self.process(leader)

    def process(
        self, leader: str
    ) -> tuple[ReplicatedOrigin, MemberKeeping, PowerSwitching, PowerKeeping]:
        """Return a process that may lead."""
        addresses = [MemberAddress(name, name) for name in self.stores]
        origin = ReplicatedOrigin(
            addresses, lambda url: self.stores[url], seconds_max=20.0, clock=self.clock
        )
        logs = RecordedLogs(origin, lambda: origin.view.home)
        keeping = MemberKeeping(
            origin, check, 1 << 40, leader, logs=logs, clock=self.clock, now=self.clock
        )
        switching = PowerSwitching(
            origin, keeping, self.drivers, leader,
            times=TIMES, is_written=logs.may_be_written, clock=self.clock, now=self.clock,
        )  # fmt: skip
        machines = {
            name: MachineSettings(WATTS[name], self.drivers.get(name)) for name in self.stores
        }
        budget = None
        if self.source is not None:
            budget = KeptBudget(self.source, 600.0, 1, clock=self.clock)
        power = PowerKeeping(
            origin, switching, machines, self.settings, load_policy(self.settings.policy), budget,
            lambda: keeping.away,
            is_written=logs.is_written,
            journal=lambda record, at_ms: self.journal.append({**record, "at_ms": at_ms}),
            now=self.clock,
        )  # fmt: skip
        keeping.power_status = power.status
        return origin, keeping, switching, power

    def limit(self, budget: float, unit: Unit = Unit.WATTS, **settings: float) -> None:
        """Have a budget of power."""
        self.source = MemoryBudget(budget)
        self.settings = PowerSettings("budget", unit, **settings)  # type: ignore[arg-type]
        self.lead()

    def run(self, seconds: float = 60.0) -> MembersStatus:
        """Let time pass, and make a pass."""
        self.clock.now += seconds
        status = self.keeping.run()
        self.power.run()
        return status

    def run_until(self, state: PowerState, name: str = "near", passes: int = 60) -> None:
        """Make passes until a member is in a state."""
        for _ in range(passes):
            if self.state(name) is state:
                return
            self.run()
        assert self.state(name) is state

    def entry(self, name: str = "near") -> PowerEntry:
        return read_power(self.home)[0].entry(name)

    def state(self, name: str = "near") -> PowerState:
        return self.entry(name).state

    def want(self, desired: Desired | None, name: str = "near") -> None:
        """Say what an operator says."""
        record, token = read_power(self.home)
        entry = record.entry(name)
        after = PowerEntry(entry.state, entry.since, entry.attempts, entry.attempt, desired)
        swap_power(self.home, token, record.with_entry(name, after))

    def sleep(self, name: str = "near") -> None:
        self.want(Desired.ASLEEP, name)
        self.run_until(PowerState.OFF, name)
        assert self.machines[name].machine is Machine.OFF

    def wake(self, name: str = "near") -> None:
        self.want(Desired.AWAKE, name)
        self.run_until(PowerState.ACTIVE, name)
        assert self.machines[name].machine is Machine.ON

    def store(self) -> None:
        """Store objects."""
        for key, content in PACKS.items():
            self.origin.put_if_absent(key, [content])

    def packs_of(self, name: str) -> set[str]:
        return set(self.stores[name].inner.list("packs/"))

    def notes(self) -> set[str]:
        return set(self.home.list("owed-deletions/"))
