"""Extra traffic of hosts from Ceilometer's samples."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor.policy.feeds.ceilometer.hosts import GAP_MAX, HostReadings
from acstor.policy.feeds.ceilometer.lag import LATE_MAX
from acstor.policy.feeds.ceilometer.samples import MeterSample
from acstor.policy.load_samples import FUTURE_MAX, Sample
from acstor.telemetry.traffic import WIRE_SHARE
from tests.unit.policy.ceilometer_cases import BOOT, Clock, host_samples


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def readings(clock: Clock) -> HostReadings:
    return HostReadings(clock)


def note(readings: HostReadings, samples: list[MeterSample]) -> list[Sample | str]:
    return [readings.note(sample) for sample in samples]


def whole(readings: HostReadings, samples: list[MeterSample]) -> Sample:
    """Note samples of which the last makes a reading whole."""
    *others, last = note(readings, samples)
    assert all(outcome == "part" for outcome in others)
    assert isinstance(last, Sample), last
    return last


def test_two_readings_give_rates(readings: HostReadings) -> None:
    assert note(readings, host_samples(10, [(0, 0)])) == ["part", "first"]
    found = whole(readings, host_samples(20, [(5_000, 7_000)]))
    assert (found.host, found.source, found.link) == ("h1", "ceilometer", 125e6)
    assert (found.extra_in, found.extra_out) == (500.0, 700.0)
    assert (found.moved_in, found.moved_out) == (None, None)


def test_what_the_data_plane_moved_is_no_extra_traffic(readings: HostReadings) -> None:
    note(readings, host_samples(10, [(0, 0)], (100, 200)))
    found = whole(readings, host_samples(20, [(5_000, 7_000)], (1_100, 2_200)))
    assert found.extra_in == pytest.approx((5_000 - WIRE_SHARE * 1_000) / 10)
    assert found.extra_out == pytest.approx((7_000 - WIRE_SHARE * 2_000) / 10)
    assert found.moved_in == pytest.approx(WIRE_SHARE * 100)


def test_interfaces_add_up_in_any_order(readings: HostReadings) -> None:
    note(readings, host_samples(10, [(0, 0), (0, 0)]))
    samples = host_samples(20, [(1_000, 0), (2_000, 50)])
    random.Random(5).shuffle(samples)
    found = whole(readings, samples)
    assert (found.extra_in, found.extra_out, found.link) == (300.0, 5.0, 250e6)


def test_doubles_and_what_comes_out_of_order_are_dropped(readings: HostReadings) -> None:
    first, second = host_samples(10, [(0, 0)]), host_samples(20, [(1_000, 0)])
    note(readings, first)
    assert note(readings, first) == ["old", "old"]
    whole(readings, second)
    assert note(readings, second + first) == ["old"] * 4
    third, fourth = host_samples(30, [(9_000, 0)]), host_samples(40, [(3_000, 0)])
    assert note(readings, fourth[:1] + third) == ["part", "old", "old"]
    found = whole(readings, fourth[1:])
    assert found.extra_in == 100.0


def test_reading_that_is_never_whole_is_dropped(readings: HostReadings) -> None:
    note(readings, host_samples(10, [(0, 0)]))
    assert note(readings, host_samples(20, [(1_000, 0)])[:1]) == ["part"]
    outcome, found = note(readings, host_samples(30, [(4_000, 0)]))
    assert outcome == "incomplete"
    assert isinstance(found, Sample)
    assert found.extra_in == 200.0


def test_traffic_is_not_known_while_the_agent_does_not_answer(readings: HostReadings) -> None:
    note(readings, host_samples(10, [(0, 0)], (0, 0)))
    silent = host_samples(20, [(50_000, 0)], (0, 0), moved_bytes=None)
    assert note(readings, silent) == ["part", "moved-unknown"]
    found = whole(readings, host_samples(30, [(60_000, 0)], (40_000, 0)))
    assert found.extra_in == pytest.approx((60_000 - WIRE_SHARE * 40_000) / 20)


def test_host_that_was_started_again_is_measured_anew(readings: HostReadings) -> None:
    note(readings, host_samples(5_000, [(1 << 40, 0)], at=BOOT))
    again = host_samples(10, [(500, 0)], boot_id="second", at=BOOT + 10)
    assert note(readings, again) == ["part", "first"]
    found = whole(readings, host_samples(20, [(700, 0)], boot_id="second", at=BOOT + 20))
    assert found.extra_in == 20.0


def test_long_gap_gives_no_mean(readings: HostReadings, clock: Clock) -> None:
    note(readings, host_samples(10, [(0, 0)]))
    clock.now += GAP_MAX + 10
    assert note(readings, host_samples(11 + GAP_MAX, [(1_000_000, 0)])) == ["part", "first"]


def test_time_stamps_far_from_now_are_dropped(readings: HostReadings, clock: Clock) -> None:
    assert (
        note(readings, host_samples(10, [(0, 0)], at=clock.now + FUTURE_MAX + 1)) == ["future"] * 2
    )
    assert note(readings, host_samples(10, [(0, 0)], at=clock.now - LATE_MAX - 1)) == ["late"] * 2


def test_counter_that_was_reset_is_not_known(readings: HostReadings) -> None:
    note(readings, host_samples(10, [(1 << 40, 1 << 40)]))
    found = whole(readings, host_samples(20, [(100, (1 << 40) + 50)]))
    assert (found.extra_in, found.extra_out) == (None, 5.0)


@pytest.mark.parametrize(
    "change",
    [
        {"host": ""}, {"host": "H 1"}, {"host": None}, {"read_at": None}, {"read_at": -1},
        {"index": "two"}, {"interfaces": 0}, {"interfaces": 65}, {"interfaces": None},
    ],
)  # fmt: skip
def test_metadata_of_nobodys_making_is_malformed(
    readings: HostReadings, change: dict[str, object]
) -> None:
    assert note(readings, host_samples(10, [(0, 0)], **change)) == ["malformed"] * 2


def test_more_interfaces_than_told_are_malformed(readings: HostReadings) -> None:
    samples = host_samples(10, [(0, 0), (0, 0)], interfaces=1)
    assert note(readings, [samples[0], *samples[2:]]) == ["part", "malformed", "malformed"]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 40),
            st.lists(
                st.tuples(st.integers(0, 1 << 63), st.integers(0, 1 << 63)), min_size=1, max_size=2
            ),
            st.none() | st.tuples(st.floats(0, 1e15), st.floats(0, 1e15)),
        ),
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_comes_rates_are_not_negative(
    cases: list[tuple[int, list[tuple[int, int]], tuple[float, float] | None]],
    chance: random.Random,
) -> None:
    readings = HostReadings(Clock())
    samples = [sample for case in cases for sample in host_samples(*case)]
    if chance.random() < 0.5:
        chance.shuffle(samples)
    for outcome in note(readings, samples):
        if isinstance(outcome, Sample):
            for rate in (outcome.extra_in, outcome.extra_out, outcome.moved_in, outcome.moved_out):
                assert rate is None or rate >= 0
