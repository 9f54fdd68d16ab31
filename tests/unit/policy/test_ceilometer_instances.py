"""Instances that cause a host's traffic."""

import pytest

from acstor.policy.feeds.ceilometer.instances import (
    EXPIRY,
    FASTEST,
    GAP_MAX,
    InstanceRate,
    InstanceTraffic,
)
from acstor.policy.feeds.ceilometer.lag import LATE_MAX
from acstor.policy.feeds.ceilometer.samples import INSTANCE_OUT
from acstor.policy.load_samples import FUTURE_MAX
from tests.unit.policy.ceilometer_cases import BOOT, Clock, instance_sample


@pytest.fixture
def clock() -> Clock:
    return Clock(BOOT)


@pytest.fixture
def traffic(clock: Clock) -> InstanceTraffic:
    return InstanceTraffic(clock)


def test_rates_of_all_interfaces_of_an_instance_add_up(
    traffic: InstanceTraffic, clock: Clock
) -> None:
    for at, volume in ((0, 0), (100, 1000)):
        clock.now = BOOT + at
        for nic in ("tap0", "tap1"):
            traffic.note(instance_sample(at, volume, nic=nic))
            traffic.note(instance_sample(at, 3 * volume, nic=nic, meter=INSTANCE_OUT))
    assert traffic.top(5) == {"h1": [InstanceRate("i1", "name of i1", "project", 20.0, 60.0)]}


def test_those_that_move_most_come_first(traffic: InstanceTraffic, clock: Clock) -> None:
    for at in (0, 100):
        clock.now = BOOT + at
        for number in range(20):
            traffic.note(instance_sample(at, at * number, instance=f"i{number}"))
        traffic.note(instance_sample(at, at, instance="elsewhere", host="H2"))
    found = traffic.top(3)
    assert [each.instance for each in found["h1"]] == ["i19", "i18", "i17"]
    assert [each.instance for each in found["h2"]] == ["elsewhere"]


def test_monotonic_time_counts_where_it_is_known(traffic: InstanceTraffic, clock: Clock) -> None:
    traffic.note(instance_sample(0, 0, steady=50.0))
    clock.now += 100
    traffic.note(instance_sample(100, 1000, steady=100.0))
    assert traffic.top(1)["h1"][0].received == 20.0


@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        (instance_sample(100, 1000), "instance"),
        (instance_sample(0, 1000), "old"),
        (instance_sample(-5, 1000), "old"),
        (instance_sample(0.1, 1000), "old"),
        (instance_sample(100, 400), "reset"),
        (instance_sample(100, 1000, host="h2"), "reset"),
        (instance_sample(100, 1000, steady=5.0), "reset"),
        (instance_sample(100, 101 * FASTEST), "absurd"),
        (instance_sample(GAP_MAX + 1, 1000), "reset"),
        (instance_sample(100, 1000, instance=""), "malformed"),
        (instance_sample(100, 1000, host=""), "malformed"),
        (instance_sample(100 + FUTURE_MAX + GAP_MAX, 1000), "future"),
        (instance_sample(-LATE_MAX - 1, 1000), "late"),
    ],
)
def test_outcomes(traffic: InstanceTraffic, clock: Clock, second: object, outcome: str) -> None:
    first = instance_sample(0, 500, steady=10.0)
    assert traffic.note(first) == "first"
    clock.now = max(clock.now, second.at - FUTURE_MAX * (outcome != "future"))  # type: ignore[attr-defined]
    if outcome == "future":
        clock.now = BOOT
    assert traffic.note(second) == outcome  # type: ignore[arg-type]
    assert bool(traffic.top(1)) is (outcome == "instance")


def test_rate_is_forgotten_when_no_sample_comes(traffic: InstanceTraffic, clock: Clock) -> None:
    traffic.note(instance_sample(0, 0))
    clock.now += 100
    traffic.note(instance_sample(100, 1000))
    assert traffic.top(1)
    clock.now += EXPIRY + 1
    assert traffic.top(1) == {}
