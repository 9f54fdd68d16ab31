"""Clocks that are off, told from samples that were held up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor.policy.feeds.ceilometer.hosts import HostReadings
from acstor.policy.feeds.ceilometer.instances import InstanceTraffic
from acstor.policy.feeds.ceilometer.lag import LATE_MAX, SHRINK_MAX, STEADY_AFTER, LagWatch
from acstor.policy.load_samples import CEILOMETER, FUTURE_MAX, LoadSamples, Sample
from tests.unit.policy.ceilometer_cases import BOOT, Clock, host_samples, instance_sample

HOUR = 3600.0
POLL = 10.0


@pytest.fixture
def clock() -> Clock:
    """Monotonic seconds; the policy's POSIX clock says the same where nothing else is said."""
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> LagWatch:
    return LagWatch(clock, clock)


@pytest.mark.parametrize(("skew", "problem"), [(HOUR, "future"), (-HOUR, "late")])
def test_host_whose_clock_is_off_is_heard_as_soon_as_that_is_known(
    watch: LagWatch, clock: Clock, skew: float, problem: str
) -> None:
    assert watch.problem("h1", clock.now + skew) == problem
    for wobble in (0.0, 1.5, 0.3, 60.0, 0.0):  # of how long samples take
        clock.now += POLL
        assert watch.problem("h1", clock.now + skew - wobble) is None
    assert watch.problem("h2", clock.now + skew) == problem, "each host has its own clock"


def test_samples_that_were_held_up_for_an_hour_are_late(watch: LagWatch, clock: Clock) -> None:
    began = clock.now
    assert watch.problem("h1", began) is None
    clock.now += HOUR
    for number in range(1, 300):  # what the queue has kept, one after the other
        clock.now += 0.01
        stamp = began + number * POLL
        is_recent = clock.now - stamp <= LATE_MAX
        assert watch.problem("h1", stamp) == (None if is_recent else "late")


def test_queue_that_is_worked_off_slowly_is_late_all_the_while(
    watch: LagWatch, clock: Clock
) -> None:
    stamp = clock.now - HOUR
    for _ in range(500):
        clock.now += 1.0
        stamp += 2.0
        if clock.now - stamp > LATE_MAX:
            assert watch.problem("h1", stamp) == "late"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_clock_of_a_host_that_is_put_right_costs_little(
    watch: LagWatch, clock: Clock, step: float
) -> None:
    skew = step
    watch.problem("h1", clock.now + skew)
    clock.now += POLL
    assert watch.problem("h1", clock.now + skew) is None
    for _ in range(3):
        clock.now += POLL
        assert watch.problem("h1", clock.now) is None


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_own_clock_that_is_off_changes_nothing(clock: Clock, step: float) -> None:
    posix = Clock(clock.now)
    watch = LagWatch(posix, clock)
    assert watch.problem("h1", clock.now) is None
    posix.now += step
    for _ in range(3):
        clock.now += POLL
        assert watch.problem("h1", clock.now) is None


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(0, LATE_MAX)), max_size=30))
def test_hosts_with_right_clocks_are_always_heard(arrivals: list[tuple[float, float]]) -> None:
    clock = Clock()
    watch = LagWatch(clock, clock)
    for pause, lag in arrivals:
        clock.now += pause
        assert watch.problem("h1", clock.now - lag) is None
        assert watch.problem("h2", clock.now - lag + min(lag, FUTURE_MAX)) is None


def test_what_shrinks_a_little_is_the_same(watch: LagWatch, clock: Clock) -> None:
    watch.problem("h1", clock.now - HOUR)
    clock.now += STEADY_AFTER
    assert watch.problem("h1", clock.now - HOUR + 0.9 * SHRINK_MAX) is None
    assert watch.problem("h1", clock.now - HOUR + 1.1 * SHRINK_MAX) == "late"


@pytest.mark.parametrize("skew", [HOUR, -HOUR])
def test_load_of_a_host_whose_clock_is_off_is_collected(clock: Clock, skew: float) -> None:
    readings, load_samples = HostReadings(clock, clock), LoadSamples(POLL, clock, clock)
    for number in range(5):
        clock.now = BOOT + POLL * number
        for part in host_samples(POLL * number + 1, [(0, 1000 * number)], at=clock.now + skew):
            found = readings.note(part)
            if isinstance(found, Sample):
                assert load_samples.note(found) == "taken"
    assert (
        load_samples.counts[CEILOMETER, "taken"] == 3
    )  # a first one to see the clock, one to begin with
    assert load_samples.collect(clock.now).hosts["h1"].extra_out == 100.0


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_own_clock_put_forth_and_back_loses_no_reading(clock: Clock, step: float) -> None:
    posix = Clock(clock.now)
    readings, load_samples = HostReadings(posix, clock), LoadSamples(POLL, clock, posix)
    for number in range(6):
        clock.now += POLL
        posix.now += POLL + (step if number == 3 else 0.0)
        for part in host_samples(POLL * number + 1, [(0, 1000 * number)], at=clock.now):
            found = readings.note(part)
            if isinstance(found, Sample):
                assert load_samples.note(found) == "taken"
    assert load_samples.counts[CEILOMETER, "taken"] == 5


def test_instances_of_a_host_whose_clock_is_off_are_known(clock: Clock) -> None:
    traffic = InstanceTraffic(clock, clock)
    found = []
    for number in range(4):
        clock.now = BOOT + POLL * number
        found.append(traffic.note(instance_sample(POLL * number + HOUR, 1000 * number)))
    assert found == ["future", "first", "instance", "instance"]
