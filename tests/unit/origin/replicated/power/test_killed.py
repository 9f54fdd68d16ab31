"""Leaders that die, are stopped, or lead at the same time: nobody switches twice."""

import itertools

import pytest

from acstor import exception
from acstor.origin.replicated.power.drivers.base import Machine
from acstor.origin.replicated.power.record import Desired, read_power
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.power.switching import BEGIN_SECONDS
from tests.unit.origin.replicated.power.sleepers import PACKS, Sleepers

KEYS = sorted(PACKS)
PASSES_MAX = 60


class KilledError(BaseException):
    """The process is killed."""


class Killer:
    """Kills a process at one of the calls that change something.

    :param call: number of the call, from 1.
    """

    def __init__(self, call: int) -> None:
        self.left = call
        self.killed_at = ""

    def __call__(self, call: str) -> None:
        if "members-status" in call or "ref-copies" in call:
            return  # of every pass, and of no step
        self.left -= 1
        if not self.left:
            self.killed_at = call
            raise KilledError


def _drive(cloud: Sleepers, desired: Desired, killer: Killer | None, state: PowerState) -> None:
    """Have a member go to a state, by one leader that is killed and others after it."""
    cloud.want(desired)
    if killer is not None:
        cloud.before = killer
    for _ in range(PASSES_MAX):
        if cloud.state() is state:
            break
        try:
            cloud.run()
        except KilledError:
            cloud.before = lambda call: None
            cloud.lead("another")
    cloud.before = lambda call: None


@pytest.mark.parametrize("is_switching_killed", [False, True])
def test_leader_is_killed_at_each_change(is_switching_killed: bool) -> None:
    """Kill it at the n-th change of the whole cycle, for each n, until there are no more."""
    places = []
    for number in itertools.count(1):
        cloud = Sleepers(("home", "near"))
        cloud.store()
        cloud.run()
        killer = Killer(number)
        if is_switching_killed:
            machine = cloud.machines["near"]
            on, off = machine.switch_on, machine.switch_off
            machine.switch_on = lambda on=on, k=killer: (on(), k("on"))[0]  # type: ignore
            machine.switch_off = lambda off=off, k=killer: (off(), k("off"))[0]  # type: ignore
        _drive(cloud, Desired.ASLEEP, killer, PowerState.OFF)
        assert cloud.state() is PowerState.OFF, killer.killed_at
        assert cloud.machines["near"].machine is Machine.OFF
        if not killer.killed_at:
            cloud.before = killer
        try:
            cloud.origin.delete(KEYS[0])
        except KilledError:
            cloud.before = lambda call: None
            cloud.lead("another")
            cloud.origin.delete(KEYS[0])  # collections repeat what they began
        _drive(cloud, Desired.AWAKE, None if killer.killed_at else killer, PowerState.ACTIVE)
        assert cloud.state() is PowerState.ACTIVE, killer.killed_at
        cloud.run()
        assert cloud.packs_of("near") == cloud.packs_of("home") == set(KEYS[1:]), killer.killed_at
        assert not cloud.notes(), killer.killed_at
        if not killer.killed_at:
            break
        places.append(killer.killed_at)
    assert len(places) >= 20
    assert {"swap member-power", "swapped member-power"} <= set(places)
    assert any(place.startswith("delete owed-deletions/") for place in places)
    assert any(place.startswith("put owed-deletions/") for place in places)
    assert is_switching_killed == bool({"on", "off"} & set(places))


def test_of_two_leaders_one_switches() -> None:
    cloud = Sleepers(("home", "near"))
    cloud.run()
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.SWITCHING_OFF)
    cloud.drivers["near"]._inner = machine = cloud.machines["near"]
    machine._is_slow = True
    others = [cloud.process(f"leader-{number}") for number in range(2)]
    cloud.clock.now += 10.0
    for _, keeping, _, power in others:
        keeping.run()
        power.run()
    cloud.clock.now += 200.0
    for _, keeping, switching, _ in others:
        keeping.run()
        switching.read()
    _, _, first, _ = others[0]
    _, _, second, _ = others[1]
    first.run()
    with pytest.raises(exception.ConflictError):
        second.run()
    assert machine.calls == ["off"]
    for _, keeping, _, power in others:
        cloud.clock.now += 60.0
        keeping.run()
        power.run()
    assert machine.calls == ["off"], "what another one has begun is waited for"
    machine.finish()
    cloud.run_until(PowerState.OFF)
    assert machine.calls == ["off"]


def test_who_was_stopped_after_its_swap_switches_nothing() -> None:
    cloud = Sleepers(("home", "near"))
    cloud.run()
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.SWITCHING_OFF)

    def stop(call: str) -> None:
        if call == "swapped member-power" and cloud.entry().attempts:
            cloud.clock.now += BEGIN_SECONDS + 1.0

    cloud.before = stop
    while not cloud.entry().attempts:
        cloud.run()
    assert cloud.machines["near"].calls == []
    cloud.before = lambda call: None
    cloud.run_until(PowerState.OFF)


def test_another_leader_waits_as_long_as_the_first_by_its_own_clock() -> None:
    cloud = Sleepers(("home", "near"))
    cloud.run()
    cloud.drivers["near"]._inner = machine = cloud.machines["near"]
    machine._is_slow = True
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.SWITCHING_OFF)
    while not machine.calls:
        cloud.run()
    cloud.lead("another")
    for _ in range(4):
        cloud.run()
    assert machine.calls == ["off"]
    record, _ = read_power(cloud.home)
    assert record.entry("near").attempts == 1
    while len(machine.calls) < 2:
        cloud.run()
    assert cloud.entry().attempts == 2
