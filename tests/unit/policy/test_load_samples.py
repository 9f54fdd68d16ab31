"""Samples late, doubled, absurd, and hosts that fall silent."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor.policy.load_samples import (
    CARRY,
    CEILOMETER,
    DIRECT,
    FORGET,
    FUTURE_MAX,
    SAMPLES_MAX,
    LoadSamples,
    Sample,
)
from acstor.policy.similarity import Sketch

INTERVAL = 10.0
LINK = 125e6


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def load_samples(clock: Clock) -> LoadSamples:
    return LoadSamples(INTERVAL, clock, clock)


def sample(sequence: int = 1, host: str = "h1", **fields: Any) -> Sample:
    values: dict[str, Any] = {
        "source": DIRECT, "at": 1000.0, "extra_in": 1e6, "extra_out": 2e6, "link": LINK,
        "sequence": sequence, **fields,
    }  # fmt: skip
    return Sample(host, **values)


def test_sample_becomes_a_load(load_samples: LoadSamples) -> None:
    assert load_samples.note(sample(moved_in=3e6, moved_out=4e6, load=0.5)) == "taken"
    load = load_samples.collect(5.0).hosts["h1"]
    assert (load.extra_in, load.extra_out, load.moved_in, load.moved_out) == (1e6, 2e6, 3e6, 4e6)
    assert (load.link, load.load, load.age) == (LINK, 0.5, 0)


def test_idle_sample_between_two_busy_ones_is_seen(load_samples: LoadSamples) -> None:
    """Reports and collections have the same interval, not the same phase."""
    for sequence, share in ((1, 0.9), (2, 0.1), (3, 0.9)):
        load_samples.note(sample(sequence, extra_out=share * LINK, moved_out=share * LINK))
        if sequence != 2:
            found = load_samples.collect(5.0).hosts["h1"]
    assert found.extra_out == found.moved_out == pytest.approx(0.5 * LINK)
    load_samples.note(sample(4, extra_out=0.9 * LINK))
    assert load_samples.collect(5.0).hosts["h1"].extra_out == 0.9 * LINK


def test_many_samples_between_two_collections_are_bounded(load_samples: LoadSamples) -> None:
    for sequence in range(3 * SAMPLES_MAX):
        load_samples.note(sample(sequence, extra_out=float(sequence)))
    newest = range(2 * SAMPLES_MAX, 3 * SAMPLES_MAX)
    mean = sum(newest) / SAMPLES_MAX
    assert load_samples.collect(5.0).hosts["h1"].extra_out == pytest.approx(mean)


def test_late_and_doubled_samples_are_dropped(load_samples: LoadSamples, clock: Clock) -> None:
    assert load_samples.note(sample(5)) == "taken"
    assert load_samples.note(sample(5, extra_out=9e6)) == "old"
    assert load_samples.note(sample(4, extra_out=9e6)) == "old"
    assert load_samples.collect(5.0).hosts["h1"].extra_out == 2e6
    clock.now += CARRY * INTERVAL + 1  # the host's clock was put back: it is heard again
    assert load_samples.note(sample(1)) == "taken"
    assert load_samples.counts[DIRECT, "old"] == 2


def test_time_stamps_order_where_there_are_no_numbers(load_samples: LoadSamples) -> None:
    feed: dict[str, Any] = {"source": CEILOMETER, "sequence": None}
    assert load_samples.note(sample(at=1000.0, **feed)) == "taken"
    assert load_samples.note(sample(at=999.0, **feed)) == "old"
    assert load_samples.note(sample(at=1000.0 + FUTURE_MAX + 1, **feed)) == "future"
    assert load_samples.note(sample(at=math.nan, **feed)) == "future"
    assert load_samples.note(sample(at=1001.0, **feed)) == "taken"


def test_clock_of_a_host_that_is_ahead_does_not_matter(load_samples: LoadSamples) -> None:
    assert load_samples.note(sample(at=1e12)) == "taken"


@pytest.mark.parametrize(
    "lie",
    [
        {"extra_in": -1.0},
        {"extra_out": math.nan},
        {"extra_out": math.inf},
        {"moved_in": -0.5},
        {"extra_in": 101 * LINK},
        {"link": -1.0},
        {"link": 1e15},
        {"link": math.nan},
        {"load": 1.5},
    ],
)
def test_absurd_samples_are_dropped_and_counted(
    load_samples: LoadSamples, lie: dict[str, Any]
) -> None:
    load_samples.note(sample(1))
    assert load_samples.note(sample(2, **lie)) == "absurd"
    assert load_samples.counts[DIRECT, "absurd"] == 1
    load = load_samples.collect(5.0).hosts["h1"]
    assert (load.extra_in, load.extra_out, load.link) == (1e6, 2e6, LINK)
    assert load_samples.note(sample(3, host="new", **lie)) == "absurd"
    assert "new" not in load_samples.collect(6.0).hosts


def test_rates_somewhat_above_the_link_are_clamped(load_samples: LoadSamples) -> None:
    assert load_samples.note(sample(extra_out=1.5 * LINK)) == "clamped"
    assert load_samples.collect(5.0).hosts["h1"].extra_out == LINK


def test_silent_host_keeps_its_load_for_a_while_and_is_never_taken_to_be_idle(
    load_samples: LoadSamples, clock: Clock
) -> None:
    load_samples.note(sample())
    for age in range(CARRY + 1):
        load = load_samples.collect(5.0).hosts["h1"]
        assert (load.age, load.extra_out) == (age, 2e6)
        clock.now += INTERVAL
    for _ in range(FORGET - CARRY):
        collection = load_samples.collect(5.0)
        assert collection.hosts == {}
        assert collection.missing == {"h1": "silent"}
        clock.now += INTERVAL
    assert load_samples.collect(5.0).missing == {}


def test_collections_in_a_hurry_make_no_host_silent(
    load_samples: LoadSamples, clock: Clock
) -> None:
    load_samples.note(sample())
    assert load_samples.collect(5.0).hosts["h1"].age == 0
    for _ in range(10 * CARRY):
        assert load_samples.collect(5.0).hosts["h1"].age == 1
    clock.now += (CARRY + 1) * INTERVAL
    assert load_samples.collect(5.0).missing == {"h1": "silent"}


def test_hosts_that_drain_or_are_down_are_missing(load_samples: LoadSamples) -> None:
    load_samples.note(sample(is_draining=True))
    load_samples.note(sample(host="h2", is_up=False))
    load_samples.note(sample(host="h3", extra_in=None, extra_out=None))
    assert load_samples.collect(5.0).missing == {"h1": "draining", "h2": "down", "h3": "silent"}


def test_host_that_does_not_know_its_traffic_keeps_what_it_knew(load_samples: LoadSamples) -> None:
    load_samples.note(sample(1))
    load_samples.collect(5.0)
    load_samples.note(sample(2, extra_in=None, extra_out=None))
    assert load_samples.collect(5.0).hosts["h1"].extra_out == 2e6


def test_direct_feed_has_precedence_while_it_is_fresh(
    load_samples: LoadSamples, clock: Clock
) -> None:
    load_samples.note(sample(1))
    other: dict[str, Any] = {"source": CEILOMETER, "sequence": None, "extra_out": 7e6}
    load_samples.note(sample(at=1001.0, **other))
    assert load_samples.collect(5.0).hosts["h1"].extra_out == 2e6
    clock.now += 3 * INTERVAL + 1
    load_samples.note(sample(at=1030.0, **other))
    assert load_samples.collect(5.0).hosts["h1"].extra_out == 7e6
    assert load_samples.ages() == {DIRECT: 3 * INTERVAL + 1, CEILOMETER: 0.0}


def test_sketches_of_known_hosts_are_kept(load_samples: LoadSamples) -> None:
    load_samples.note_sketch("h1", Sketch(1, (5,)))
    load_samples.note(sample())
    assert load_samples.sketches() == {}
    load_samples.note_sketch("h1", Sketch(1, (5,)))
    assert load_samples.sketches() == {"h1": Sketch(1, (5,))}


class Watched:
    """Load samples that watch for 80 % of the link, and a host that tells how busy it is."""

    def __init__(self, load_samples: LoadSamples, clock: Clock) -> None:
        self.load_samples, self.clock = load_samples, clock
        self.sequence = self.heard = 0
        load_samples.watch(lambda load: load.utilisation >= 0.8, 2, self.hear)

    def hear(self) -> None:
        self.heard += 1

    def tell(self, share: float | None, after: float = INTERVAL, host: str = "h1") -> int | None:
        """Return the streak after a sample that comes so many seconds after the one before."""
        self.clock.now += after
        self.sequence += 1
        extra = None if share is None else share * LINK
        self.load_samples.note(sample(self.sequence, host, extra_in=0.0, extra_out=extra))
        return self.load_samples.collect(5.0).hosts[host].streak


@pytest.fixture
def watched(load_samples: LoadSamples, clock: Clock) -> Watched:
    return Watched(load_samples, clock)


def test_book_that_is_not_watched_counts_nothing(load_samples: LoadSamples) -> None:
    load_samples.note(sample(extra_out=LINK))
    assert load_samples.collect(5.0).hosts["h1"].streak is None


def test_second_busy_sample_in_a_row_is_told_at_once_and_once(watched: Watched) -> None:
    assert [watched.tell(share) for share in (0.1, 0.9, 0.1, 0.9)] == [0, 1, 0, 1]
    assert watched.heard == 0
    assert [watched.tell(0.9, 0.9 * INTERVAL) for _ in range(3)] == [2, 3, 4]
    assert watched.heard == 1
    assert [watched.tell(share) for share in (0.1, 0.9, 0.9)] == [0, 1, 2]
    assert watched.heard == 2


def test_row_covers_time_however_often_samples_come(watched: Watched) -> None:
    watched.tell(0.1)
    assert [watched.tell(0.9, 0.25 * INTERVAL) for _ in range(8)] == [1, 1, 1, 1, 1, 1, 2, 2]
    watched.tell(0.1)
    assert [watched.tell(0.9, 2 * INTERVAL) for _ in range(3)] == [1, 2, 3]  # rare ones count once
    watched.tell(0.1)
    watched.tell(0.9)
    assert watched.tell(0.9, (CARRY + 2) * INTERVAL) == 1  # what was between is not known


def test_backlog_of_samples_is_no_row_that_lasts(watched: Watched) -> None:
    """As when a service was paused: what it hears then was measured, but not now."""
    watched.tell(0.1)
    watched.tell(0.9, CARRY * INTERVAL)
    assert watched.tell(0.1, 0.0) == 0
    assert watched.tell(0.9, 0.1) == watched.tell(0.9, 0.1) == 1
    assert watched.heard == 0


def test_samples_of_a_row_are_not_mixed_with_what_was_before(
    load_samples: LoadSamples, watched: Watched, clock: Clock
) -> None:
    for sequence, share in ((1, 0.1), (2, 0.9)):
        load_samples.note(sample(sequence, extra_out=share * LINK))
        clock.now += 0.9 * INTERVAL
    load = load_samples.collect(5.0).hosts["h1"]
    assert (load.extra_out, load.streak) == (0.9 * LINK, 1)


def test_hosts_that_tell_nothing_or_drain_have_no_row(
    load_samples: LoadSamples, watched: Watched
) -> None:
    watched.tell(0.9)
    assert watched.tell(None) == 0
    load_samples.note(sample(99, "h2", extra_out=LINK, is_draining=True))
    load_samples.note(sample(100, "h2", extra_out=LINK))
    assert load_samples.collect(5.0).hosts["h2"].streak == 1


@given(
    st.floats(0.2, 2.0), st.floats(0.0, 1.0), st.lists(st.floats(0.9, 1.0), min_size=8, max_size=30)
)
def test_no_square_wave_below_the_trigger_gives_two_busy_samples_in_a_row(
    period: float, phase: float, gaps: list[float]
) -> None:
    """Busy half of the time, periods in intervals up to the trigger's two, whatever the phase."""
    clock = Clock()
    watched = Watched(LoadSamples(INTERVAL, clock, clock), clock)

    def busy(until: float) -> float:
        """Return for how long the link was full, from 0 until a time in intervals."""
        whole, rest = divmod(until / period + phase, 1.0)
        return (whole / 2 + min(rest, 0.5)) * period

    at = 0.0
    for gap in gaps:
        watched.tell(min(1.0, (busy(at + gap) - busy(at)) / gap), gap * INTERVAL)
        at += gap
    assert watched.heard == 0


ANY = st.none() | st.floats() | st.just(-1.0)


@given(st.lists(st.tuples(st.floats(), ANY, ANY, ANY, ANY, ANY, ANY, st.none() | st.integers())))
def test_whatever_is_noted_collections_are_sound(
    lies: list[tuple[float, float, float, float, float, float, float, int]],
) -> None:
    clock = Clock()
    load_samples = LoadSamples(INTERVAL, clock, clock)
    for at, extra_in, extra_out, moved_in, moved_out, link, load, sequence in lies:
        load_samples.note(
            Sample("h1", DIRECT, at, extra_in, extra_out, moved_in, moved_out, link, load,
                   sequence=sequence)
        )  # fmt: skip
    for found in load_samples.collect(5.0).hosts.values():
        assert 0 <= found.utilisation <= 2
