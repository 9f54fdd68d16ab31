"""Members that sleep for a budget: by virtual time, with budgets that vanish, lie and flap."""

import random
from typing import Any

import pytest

from acstor import exception
from acstor.origin.replicated.power.budgets.base import Unit
from acstor.origin.replicated.power.budgets.faulty import FaultyBudget
from acstor.origin.replicated.power.budgets.kept import KeptBudget
from acstor.origin.replicated.power.budgets.memory import MemoryBudget
from acstor.origin.replicated.power.deciding import (
    MemberInput,
    PowerInputs,
    PowerSettings,
    Why,
    decide,
    load_policy,
)
from acstor.origin.replicated.power.record import Desired
from acstor.origin.replicated.power.replaying import replay_power
from acstor.origin.replicated.power.states import SETTLED, PowerEvent, PowerState
from testbed.doubles.virtual_time import VirtualTime
from tests.unit.origin.replicated.power.sleepers import WATTS, Sleepers

LONG = 1e6


def inputs(
    budget: float | None, states: dict[str, PowerState] | None = None, **settings: Any
) -> PowerInputs:
    """Return inputs of three members that have been as they are for long."""
    found = {"home": PowerState.ACTIVE, "near": PowerState.ACTIVE, "far": PowerState.ACTIVE}
    found |= states or {}
    members = tuple(
        MemberInput(name, state, LONG, WATTS[name], name == "home", name != "home")
        for name, state in found.items()
    )
    return PowerInputs(PowerSettings("budget", **settings), members, budget)


def on(budget: float | None, **settings: Any) -> set[str]:
    found = decide(inputs(budget, **settings), load_policy("budget"))
    return {name for name, one in found.members.items() if one.is_on}


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (600.0, {"home", "near", "far"}),
        (599.0, {"home", "far"}),
        (500.0, {"home", "far"}),
        (400.0, {"home", "far"}),
        (399.0, {"home"}),
        (0.0, {"home"}),
        (None, {"home", "near", "far"}),
    ],
)
def test_as_many_are_on_as_the_budget_allows(budget: float | None, expected: set[str]) -> None:
    assert on(budget) == expected


def test_budget_may_be_a_number_of_members() -> None:
    assert len(on(2, unit=Unit.MEMBERS)) == 2
    assert on(0, unit=Unit.MEMBERS) == {"home"}
    assert len(on(0, unit=Unit.MEMBERS, members_min=2)) == 2


def test_member_that_would_wake_leaves_a_margin() -> None:
    asleep = inputs(600.0, {"near": PowerState.OFF})
    assert decide(asleep, load_policy("budget")).change is None
    roomy = inputs(640.0, {"near": PowerState.OFF})
    assert decide(roomy, load_policy("budget")).change == ("near", PowerEvent.WAKE)


def test_unknown_budget_wakes_one_after_the_other() -> None:
    states = {"near": PowerState.OFF, "far": PowerState.OFF}
    found = decide(inputs(None, states), load_policy("budget"))
    assert found.change == ("far", PowerEvent.WAKE)
    assert found.members["near"].why is Why.UNKNOWN
    assert found.members["near"].waits_for == "another member changes"


def test_rules_hold_whatever_the_inputs_are() -> None:
    """The home, the minimum, times and one change at once: for random inputs and any policy."""
    choice = random.Random(7)
    changes = 0
    for _ in range(4000):
        members = [
            MemberInput(
                name,
                PowerState.ACTIVE if name == "home" else choice.choice(list(PowerState)),
                choice.choice([0.0, 700.0, LONG]),
                WATTS[name],
                name == "home",
                name != "home" and choice.random() < 0.8,
                choice.random() < 0.8 or name == "home",
                choice.choice([None, *Desired]),
                choice.random() < 0.2,
            )
            for name in WATTS
        ]
        budget = choice.choice([None, 0.0, 350.0, 450.0, 1000.0])
        settings = PowerSettings(
            choice.choice(["none", "budget"]), members_min=choice.choice([1, 2])
        )
        given = PowerInputs(settings, tuple(members), budget)
        found = decide(given, load_policy(settings.policy))
        assert PowerInputs.from_json(given.to_json()) == given
        assert found.members["home"].is_on
        if found.change is None:
            continue
        changes += 1
        name, event = found.change
        one = next(one for one in members if one.name == name)
        if event is PowerEvent.WAKE:
            assert found.members[name].is_on
            continue
        assert (one.is_switchable, one.is_reachable, one.has_alarm) == (True, True, False)
        others = [other for other in members if other.name != name]
        assert all(other.state in SETTLED for other in others)
        ready = [o for o in others if o.state is PowerState.ACTIVE and o.is_reachable]
        assert len(ready) >= settings.members_min
        assert one.seconds >= settings.on_seconds or one.desired is Desired.ASLEEP
    assert changes > 500


def test_members_follow_the_budget_and_decisions_are_computed_again() -> None:
    cloud = Sleepers()
    cloud.run()
    cloud.limit(600.0)
    for _ in range(10):
        cloud.run()
    assert cloud.state("near") is PowerState.ACTIVE
    assert cloud.source is not None
    cloud.source.value = 350.0
    cloud.run_until(PowerState.OFF, "near")
    cloud.run_until(PowerState.OFF, "far")
    assert cloud.state("home") is PowerState.ACTIVE
    status = cloud.run().power
    assert status is not None
    assert (status.budget, status.unit, status.source) == (350.0, "watts", "memory")
    cloud.source.value = 700.0
    cloud.run_until(PowerState.ACTIVE, "near")
    cloud.run_until(PowerState.ACTIVE, "far")
    changes = [record["decision"]["change"][0] for record in cloud.journal]
    assert sorted(changes) == ["far", "far", "near", "near"]
    for record in cloud.journal:
        assert replay_power(record).differences == []
        other = {**record, "decision": {**record["decision"], "change": ["home", "sleep"]}}
        assert "change: " in replay_power(other).differences[0]


@pytest.mark.parametrize("minutes", [1, 7, 20])
def test_budget_that_flaps_switches_no_more_often_than_times_allow(minutes: int) -> None:
    cloud = Sleepers()
    cloud.run()
    cloud.limit(600.0)
    assert cloud.source is not None
    hours = 6
    for minute in range(hours * 60):
        cloud.source.value = (350.0, 700.0)[minute // minutes % 2]
        cloud.run()
    switches = sum(len(cloud.machines[name].calls) for name in ("near", "far"))
    cycle = cloud.settings.on_seconds + cloud.settings.off_seconds
    assert switches <= 2 * 2 * (hours * 3600.0 / cycle + 1)
    assert bool(switches) == (minutes > 1), "the budget has to last for a switch"


def test_budget_that_cannot_be_read_counts_for_a_while_and_then_all_wake() -> None:
    clock = VirtualTime()
    faulty = FaultyBudget(MemoryBudget(350.0))
    kept = KeptBudget(faulty, 600.0, 3, clock=clock, wait=clock.sleep)
    assert kept.reading().value is None
    assert kept.read().value == 350.0
    away = exception.UnavailableError("away on purpose")
    faulty.faults = [away, away]
    assert kept.read().error == "", "repeated within one reading"
    assert len(clock.waits) == 2
    faulty.faults = [away] * 3
    assert kept.read().value == 350.0
    assert "away on purpose" in kept.reading().error
    clock.now += 601.0
    faulty.faults = [exception.CorruptError("nonsense on purpose")]
    calls = faulty.calls
    found = kept.read()
    assert (found.value, faulty.calls) == (None, calls + 1), "what is wrong is not repeated"
    assert (found.age_seconds or 0.0) > 600.0
    assert kept.read().value == 350.0


def test_operators_word_counts_more_than_the_budget() -> None:
    cloud = Sleepers()
    cloud.run()
    cloud.limit(600.0)
    cloud.sleep("near")
    assert cloud.source is not None
    cloud.source.value = 350.0
    cloud.want(Desired.AWAKE, "far")
    for _ in range(60):
        cloud.run()
    assert (cloud.state("near"), cloud.state("far")) == (PowerState.OFF, PowerState.ACTIVE)
    cloud.want(None, "far")
    cloud.run_until(PowerState.OFF, "far")


def test_plug_in_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(exception.UnsupportedError, match="nonsense") as found:
        load_policy("nonsense")
    assert "budget, none" in found.value.hint


@pytest.mark.parametrize(
    "fields", [{}, [], {"settings": {}, "members": [{"state": "odd"}], "budget": 1}]
)
def test_malformed_inputs_of_a_journal_are_refused(fields: object) -> None:
    with pytest.raises(exception.InvalidError):
        PowerInputs.from_json(fields)
