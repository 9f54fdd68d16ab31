"""Estimates that hosts make of their sources, one rule at a time."""

import pytest

from sim import estimates, slow_looks
from sim.run import Run, prepare
from sim.world import ORIGIN, PEER
from tests.unit.sim.small_runs import case

NOW = 100.0
ORIGIN_HOST = 8


@pytest.fixture
def run() -> Run:
    """Return a run of eight hosts before anything has happened."""
    return prepare(case("acstor", network__fanout=[8], readpath__load_aware=True))


def know(run: Run, source: int, delay: float, usual: float, at: float = NOW) -> int:
    """Let host 0 know a source, and return its row."""
    row = int(estimates.row_of(run.handle, 0, source))
    run.world.delay[row], run.world.delay_at[row], run.world.usual[row] = delay, at, usual
    run.world.view_at[0] = -1.0
    return row


def ask(run: Run, attempt: int, source: int, at: float) -> None:
    """Let host 0 ask a source."""
    world = run.world
    world.attempt_flight[attempt] = 0
    world.flight_host[0] = 0
    world.attempt_kind[attempt] = ORIGIN if source == ORIGIN_HOST else PEER
    world.attempt_row[attempt] = estimates.row_of(run.handle, 0, source)
    world.attempt_started[attempt] = at
    estimates.begin(run.handle, attempt)


def test_sample_is_divided_by_what_was_under_way(run: Run) -> None:
    for attempt in range(4):
        ask(run, attempt, 1, NOW)
    estimates.note_delay(run.handle, run.rules, 3, NOW + 0.04, True)
    row = int(run.world.attempt_row[3])
    assert run.world.delay[row] == pytest.approx(0.01, rel=1e-3)


def test_outlier_counts_as_four_averages_and_good_news_more(run: Run) -> None:
    row = know(run, 1, 0.001, 0.001)
    ask(run, 0, 1, NOW - 1.0)
    estimates.note_delay(run.handle, run.rules, 0, NOW, True)
    assert run.world.delay[row] == pytest.approx(0.001 + 0.3 * 0.003, rel=1e-3)
    row = know(run, 2, 0.01, 0.001)
    ask(run, 1, 2, NOW - 0.002)
    estimates.note_delay(run.handle, run.rules, 1, NOW, True)
    assert run.world.delay[row] == pytest.approx(0.006, rel=0.02)


def test_what_was_given_up_is_a_lower_bound(run: Run) -> None:
    row = know(run, 1, 0.01, 0.01)
    ask(run, 0, 1, NOW - 0.005)
    estimates.note_delay(run.handle, run.rules, 0, NOW, False)
    assert run.world.delay[row] == pytest.approx(0.01)
    ask(run, 1, 1, NOW - 0.5)
    estimates.end(run.handle, 0)
    estimates.note_delay(run.handle, run.rules, 1, NOW, False)
    assert run.world.delay[row] > 0.01


def test_usual_follows_down_and_doubles_per_minute_at_most(run: Run) -> None:
    row = know(run, 1, 0.016, 0.001, at=NOW - 60)
    ask(run, 0, 1, NOW - 0.016)
    estimates.note_delay(run.handle, run.rules, 0, NOW, True)
    assert run.world.usual[row] == pytest.approx(0.002, rel=0.01)
    run.world.usual[row] = 1.0
    ask(run, 1, 1, NOW)
    estimates.end(run.handle, 0)
    estimates.note_delay(run.handle, run.rules, 1, NOW + 0.001, True)
    assert run.world.usual[row] == pytest.approx(1.0 - 1.0 / 16, rel=0.01)


def test_oldest_fetch_under_way_is_a_lower_bound(run: Run) -> None:
    ask(run, 0, 1, NOW - 0.3)
    ask(run, 1, 1, NOW - 0.1)
    row = int(run.world.attempt_row[0])
    assert estimates.estimate(run.handle, row, NOW) == pytest.approx(0.15)
    estimates.end(run.handle, 0)
    assert estimates.estimate(run.handle, row, NOW) == pytest.approx(0.1)
    estimates.end(run.handle, 1)
    assert estimates.estimate(run.handle, row, NOW) == 0
    assert run.world.underway[row] == 0


def test_own_link_is_slow_when_all_sources_are(run: Run) -> None:
    for peer in (1, 2, 3):
        know(run, peer, 0.05, 0.001)
    know(run, ORIGIN_HOST, 0.06, 0.002)
    assert estimates.is_own_link_slow(run.handle, run.rules, 0, NOW)
    know(run, 2, 0.001, 0.001)
    assert not estimates.is_own_link_slow(run.handle, run.rules, 0, NOW), "one is fast"


def test_own_link_is_not_slow_where_the_origin_stands_out(run: Run) -> None:
    for peer in (1, 2, 3):
        know(run, peer, 0.05, 0.001)
    know(run, ORIGIN_HOST, 0.006, 0.0025)
    assert not estimates.is_own_link_slow(run.handle, run.rules, 0, NOW)


def test_origin_faster_than_a_full_link_stands_out_sooner(run: Run) -> None:
    for peer in (1, 2, 3):
        know(run, peer, 0.018, 0.001)
    know(run, ORIGIN_HOST, 0.006, 0.002)
    assert estimates.is_own_link_slow(run.handle, run.rules, 0, NOW), "by 3, not by 4"
    for peer in (1, 2, 3):
        know(run, peer, 0.012, 0.001)
    know(run, ORIGIN_HOST, 0.0045, 0.0015)
    assert not estimates.is_own_link_slow(run.handle, run.rules, 0, NOW), "by 2.67, not by 2.5"


def test_what_is_old_says_nothing_of_the_own_link(run: Run) -> None:
    know(run, 1, 0.05, 0.001)
    for peer in (2, 3):
        know(run, peer, 0.05, 0.001, at=NOW - 20)
    assert not estimates.is_own_link_slow(run.handle, run.rules, 0, NOW)


def test_view_is_taken_anew_after_twenty_milliseconds(run: Run) -> None:
    for peer, delay in ((1, 0.001), (2, 0.002), (3, 0.009), (4, 0.010)):
        know(run, peer, delay, 0.001)
    estimates.look(run.handle, run.rules, 0, NOW)
    assert run.world.view_median[0] == pytest.approx(0.002)
    run.world.delay[estimates.row_of(run.handle, 0, 2)] = 0.003
    estimates.look(run.handle, run.rules, 0, NOW + 0.01)
    assert run.world.view_median[0] == pytest.approx(0.002)
    estimates.look(run.handle, run.rules, 0, NOW + 0.021)
    assert run.world.view_median[0] == pytest.approx(0.003, rel=0.01)


LOOKS_PER_SECOND = 100


def seen_slow(run: Run, peer: int, since: float, until: float) -> None:
    """Let host 0 look at a peer again and again."""
    for step in range(round((until - since) * LOOKS_PER_SECOND) + 1):
        row = estimates.row_of(run.handle, 0, peer)
        estimates.note_slow(run.handle, run.rules, 0, row, since + step / LOOKS_PER_SECOND)


def test_peer_that_stands_out_is_loaded_after_a_while(run: Run) -> None:
    know(run, 1, 0.1, 0.001)
    for peer in (2, 3, 4):
        know(run, peer, 0.001, 0.001)
    know(run, ORIGIN_HOST, 0.002, 0.002)
    seen_slow(run, 1, NOW, NOW)
    assert not estimates.is_loaded(run.handle, run.rules, 0, 1, NOW + 0.1), "a convoy passes"
    seen_slow(run, 1, NOW, NOW + 0.4)
    assert estimates.is_loaded(run.handle, run.rules, 0, 1, NOW + 0.4)
    assert not estimates.is_loaded(run.handle, run.rules, 0, 2, NOW + 0.4)


def test_slow_peers_are_loaded_in_the_end_even_if_none_stands_out(run: Run) -> None:
    for peer in (1, 2, 3):
        know(run, peer, 0.1, 0.05, at=NOW + 1)
    know(run, ORIGIN_HOST, 0.002, 0.002, at=NOW + 1)
    seen_slow(run, 1, NOW, NOW + 0.95)
    assert not estimates.is_loaded(run.handle, run.rules, 0, 1, NOW + 0.95)
    seen_slow(run, 1, NOW + 0.95, NOW + 1.05)
    assert estimates.is_loaded(run.handle, run.rules, 0, 1, NOW + 1.05)


def test_few_looks_make_no_load(run: Run) -> None:
    row = know(run, 1, 0.1, 0.001)
    for peer in (2, 3, 4):
        know(run, peer, 0.001, 0.001)
    know(run, ORIGIN_HOST, 0.002, 0.002)
    for step in range(3):
        estimates.note_slow(run.handle, run.rules, 0, row, NOW + step)
    assert not estimates.is_loaded(run.handle, run.rules, 0, 1, NOW + 2)
    estimates.note_slow(run.handle, run.rules, 0, row, NOW + 3)
    assert estimates.is_loaded(run.handle, run.rules, 0, 1, NOW + 3)


def good_look(run: Run, row: int, at: float) -> bool:
    return bool(slow_looks.note_look(run.handle, run.rules, 0, row, False, at))


def test_one_good_look_ends_a_moment_and_four_end_a_load(run: Run) -> None:
    row = know(run, 1, 0.5, 0.001, at=NOW + 2)
    seen_slow(run, 1, NOW, NOW + 0.9)
    assert not good_look(run, row, NOW + 0.9)
    assert slow_looks.slow_for(run.handle, run.rules, row) < 0
    seen_slow(run, 1, NOW + 1, NOW + 2)
    for _ in range(3):
        assert good_look(run, row, NOW + 2)
    assert slow_looks.slow_for(run.handle, run.rules, row) == pytest.approx(1.0, abs=1e-4)
    assert not good_look(run, row, NOW + 2)


def test_where_all_peers_were_slow_each_of_them_is_loaded(run: Run) -> None:
    for peer in (1, 2, 3):
        know(run, peer, 0.1, 0.05, at=NOW + 1)
    know(run, ORIGIN_HOST, 0.002, 0.002, at=NOW + 1)
    for step in range(40):
        row = estimates.row_of(run.handle, 0, 1 + step % 2)
        estimates.note_slow(run.handle, run.rules, 0, row, NOW + step / 30)
    run.world.slow_looks[estimates.row_of(run.handle, 0, 3)] = 0
    assert estimates.is_loaded(run.handle, run.rules, 0, 3, NOW + 1.3), "never looked at"


def test_fetch_without_an_answer_is_a_load(run: Run) -> None:
    row = know(run, 1, 0.5, 0.001)
    ask(run, 0, 1, NOW - 0.2)
    estimates.note_overtaken(run.handle, run.rules, 0, NOW)
    assert slow_looks.slow_for(run.handle, run.rules, row) < 0
    ask(run, 1, 1, NOW - 0.4)
    estimates.note_overtaken(run.handle, run.rules, 1, NOW)
    assert slow_looks.slow_for(run.handle, run.rules, row) == pytest.approx(1.0, abs=1e-4)
    slow_looks.note_silence(run.handle, run.rules, row, 2.0, NOW + 1)
    assert slow_looks.slow_for(run.handle, run.rules, row) == pytest.approx(2.0, abs=1e-4)


def test_gap_without_a_look_begins_anew(run: Run) -> None:
    row = know(run, 1, 0.5, 0.001)
    seen_slow(run, 1, NOW, NOW + 0.5)
    assert slow_looks.slow_for(run.handle, run.rules, row) == pytest.approx(0.5, abs=1e-4)
    know(run, 1, 0.5, 0.001, at=NOW + 12)
    seen_slow(run, 1, NOW + 12, NOW + 12.3)
    assert slow_looks.slow_for(run.handle, run.rules, row) == pytest.approx(0.3, abs=1e-4)


def test_what_is_known_already_is_no_look(run: Run) -> None:
    row = know(run, 1, 0.5, 0.001)
    know(run, ORIGIN_HOST, 0.002, 0.002)
    for _ in range(10):
        assert estimates.look_at(run.handle, run.rules, 0, 1, NOW) == estimates.FREE
    assert run.world.slow_looks[row] == 0
    ask(run, 0, 1, NOW - 1.0)
    for _ in range(10):
        estimates.look_at(run.handle, run.rules, 0, 1, NOW)
    assert run.world.slow_looks[row] == 10, "what is under way waits longer still"


def test_loaded_peers_among_slow_ones_do_not_hide_that_the_own_link_is_full(run: Run) -> None:
    for peer in (1, 2, 3):
        know(run, peer, 0.05, 0.001)
    know(run, 4, 0.9, 0.001)
    know(run, ORIGIN_HOST, 0.06, 0.002)
    seen_slow(run, 4, NOW - 2, NOW)
    assert estimates.is_own_link_slow(run.handle, run.rules, 0, NOW)


def test_hedge_of_a_calm_origin_waits_for_what_is_under_way(run: Run) -> None:
    for peer in (1, 2, 3):
        know(run, peer, 0.001, 0.001)
    know(run, ORIGIN_HOST, 0.01, 0.01)
    ask(run, 0, 1, NOW)
    unknown = estimates.hedge_delay(run.handle, run.rules, 0, NOW)
    assert unknown == run.rules.hedge_max, "nothing says that the peer is loaded"
    row = int(run.world.attempt_row[0])
    run.world.slow_since[row], run.world.slow_looks[row] = NOW - 1, 20
    run.world.slow_seen[row] = NOW
    alone = estimates.hedge_delay(run.handle, run.rules, 0, NOW)
    assert alone == pytest.approx(0.04, rel=0.01)
    ask(run, 1, 1, NOW)
    assert estimates.hedge_delay(run.handle, run.rules, 1, NOW) == pytest.approx(2 * alone)
    know(run, ORIGIN_HOST, 0.5, 0.01)
    assert estimates.hedge_delay(run.handle, run.rules, 1, NOW) == run.rules.hedge_max


def test_rescue_over_a_slow_own_link_waits_for_half_of_the_deadline(run: Run) -> None:
    ask(run, 0, 1, NOW)
    run.world.flight_started[0] = NOW
    assert estimates.rescue_delay(run.handle, run.rules, 0) == pytest.approx(15.0)
    row = int(run.world.attempt_row[0])
    run.world.samples[row], run.world.histogram[row, 50] = 40, 40
    known = estimates.p99(run.world.histogram[row], 40)
    assert estimates.rescue_delay(run.handle, run.rules, 0) == pytest.approx(max(1.0, 2 * known))
