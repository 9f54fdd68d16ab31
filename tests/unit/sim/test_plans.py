"""Order of the sources that a flight asks."""

from typing import Any

import numpy as np
import pytest

from sim import estimates, flights, plans
from sim.run import Run, prepare, run_case
from sim.world import BYPASSES, LINE, ORIGIN, PEER, STAND_IN
from tests.unit.sim.small_runs import case
from tests.unit.sim.test_estimates import NOW, ORIGIN_HOST, ask, know, seen_slow


@pytest.fixture
def run() -> Run:
    """Return a run of eight hosts in which host 0 is in nobody's line."""
    run = prepare(case("acstor", network__fanout=[8], readpath__load_aware=True))
    run.world.line[:] = np.array([1, 2, 3, 4][:LINE])
    run.world.clock[0] = NOW
    know(run, ORIGIN_HOST, 0.002, 0.002)
    for peer in range(1, 8):
        know(run, peer, 0.001, 0.001)
    return run


def plan(run: Run) -> list[tuple[int, int]]:
    """Return source and kind of what a machine's flight on host 0 asks."""
    flight = flights.new_flight(run.handle, run.rules, 0, 0, 65536.0, NOW)
    run.world.flight_wanted[flight] = 1
    run.world.view_at[0] = -1.0
    plans.make_plan(run.handle, run.rules, flight)
    count = int(run.world.flight_planned[flight])
    sources, kinds = run.world.flight_plan[flight], run.world.flight_kinds[flight]
    return [(int(sources[index]), int(kinds[index])) for index in range(count)]


LINE_FIRST = [(1, PEER), (2, PEER), (ORIGIN_HOST, ORIGIN)]


def overload(run: Run, *peers: int) -> None:
    """Let peers have been slow for two seconds."""
    for peer in peers:
        know(run, peer, 0.2, 0.001)
        seen_slow(run, peer, NOW - 2, NOW)


def test_even_times_keep_the_line(run: Run) -> None:
    assert plan(run) == LINE_FIRST


def test_next_in_line_takes_the_place_of_a_loaded_peer(run: Run) -> None:
    overload(run, 1)
    assert plan(run) == [(2, PEER), (ORIGIN_HOST, ORIGIN), (1, PEER)]
    assert run.world.totals[BYPASSES] == 0


def test_origin_takes_the_place_of_loaded_peers(run: Run) -> None:
    overload(run, 1, 2)
    assert plan(run) == [(ORIGIN_HOST, ORIGIN), (1, PEER), (2, PEER)]
    assert run.world.totals[BYPASSES] == 1


def burden(run: Run, *peers: int) -> None:
    """Let peers have been slow for a moment."""
    for peer in peers:
        know(run, peer, 0.2, 0.001)
        seen_slow(run, peer, NOW - 0.4, NOW)


def test_short_loads_leave_the_line_as_it_is(run: Run) -> None:
    burden(run, 1, 2)
    assert plan(run) == LINE_FIRST
    assert run.world.totals[BYPASSES] == 0


def test_next_in_line_is_asked_first_for_what_it_holds_while_a_load_is_young(run: Run) -> None:
    burden(run, 1)
    assert plan(run) == LINE_FIRST, "it has never answered"
    row = estimates.row_of(run.handle, 0, 2)
    run.world.answered_at[row] = NOW - 9
    assert plan(run) == [(2, STAND_IN), *LINE_FIRST]
    run.world.answered_at[row] = NOW - 11
    assert plan(run) == LINE_FIRST, "long ago"


def test_stand_in_has_nobody_waiting(run: Run) -> None:
    burden(run, 1)
    run.world.answered_at[estimates.row_of(run.handle, 0, 2)] = NOW
    ask(run, 0, 2, NOW - 0.006)
    assert plan(run) == LINE_FIRST


def test_stand_in_reads_nothing_from_the_origin(run: Run) -> None:
    run.world.flight_host[:] = 0
    burden(run, 1)
    run.world.answered_at[estimates.row_of(run.handle, 0, 2)] = NOW
    run.world.has[3, 0] = 0
    flight = flights.new_flight(run.handle, run.rules, 0, 0, 65536.0, NOW)
    run.world.flight_wanted[flight] = 1
    flights.ask_next(run.handle, run.rules, flight, NOW, False)
    attempt = int(run.world.flight_attempts[flight, 0])
    assert (run.world.attempt_source[attempt], run.world.attempt_kind[attempt]) == (2, STAND_IN)
    assert not flights.answered(run.handle, run.rules, attempt, NOW)
    assert run.world.flight_of[2, 0] < 0, "it does not fetch it for us"
    assert run.world.flight_running[flight] == 0


def test_load_behind_a_free_owner_comes_after_the_origin(run: Run) -> None:
    burden(run, 2)
    assert plan(run) == LINE_FIRST
    overload(run, 2)
    assert plan(run) == [(1, PEER), (ORIGIN_HOST, ORIGIN), (2, PEER)]
    assert not run.world.probe_at.any(), "nobody is probed"


def test_what_came_from_the_origin_is_kept_by_whoever_read_it(run: Run) -> None:
    for kind, is_kept in ((PEER, 0), (ORIGIN, 1)):
        flight = flights.new_flight(run.handle, run.rules, 0, 0, 65536.0, NOW)
        run.world.flight_wanted[flight] = 1
        run.world.flight_attempts[flight] = -1
        source = ORIGIN_HOST if kind == ORIGIN else 1
        flights._start_attempt(run.handle, run.rules, flight, source, kind, False, NOW)
        run.world.ghost[0, 0] = 0
        flights.arrived(
            run.handle, run.rules, int(run.world.flight_attempts[flight, 0]), NOW + 0.001
        )
        assert run.world.has[0, 0] == is_kept


def test_origin_that_is_busy_takes_nobodys_place(run: Run) -> None:
    for peer in (1, 2):
        know(run, peer, 0.1, 0.001)
        seen_slow(run, peer, NOW - 2, NOW)
    know(run, ORIGIN_HOST, 0.02, 0.002)
    assert plan(run) == LINE_FIRST


def test_peers_far_slower_than_a_busy_origin_are_left(run: Run) -> None:
    know(run, ORIGIN_HOST, 0.02, 0.002)
    overload(run, 1, 2)
    assert plan(run)[0] == (ORIGIN_HOST, ORIGIN)


def fill_own_link(run: Run) -> None:
    for peer in range(1, 8):
        know(run, peer, 0.05, 0.001)
        seen_slow(run, peer, NOW - 2, NOW)
    know(run, ORIGIN_HOST, 0.05, 0.002)


def test_full_own_link_keeps_the_line_compressed_and_what_comes(run: Run) -> None:
    assert not plans.asks_packed(run.handle, run.rules, 0, 1, NOW)
    fill_own_link(run)
    assert plan(run) == LINE_FIRST
    assert plans.asks_packed(run.handle, run.rules, 0, 1, NOW)
    run.world.attempt_kind[0] = ORIGIN
    assert plans.keeps_of_slow(run.handle, run.rules, 0, 0, NOW)


def test_origin_is_tried_once_where_nothing_is_known_of_it(run: Run) -> None:
    fill_own_link(run)
    know(run, ORIGIN_HOST, 0.05, 0.002, at=NOW - 30)
    assert plan(run) == LINE_FIRST, "not known for long enough"
    run.world.slow_link_since[0] = NOW - 2.1
    assert plan(run) == [(ORIGIN_HOST, ORIGIN), (1, PEER), (2, PEER)]
    assert plan(run) == LINE_FIRST, "the next trial is two seconds later"


def test_loaded_peer_is_asked_to_compress(run: Run) -> None:
    overload(run, 1)
    run.world.view_at[0] = -1.0
    assert plans.asks_packed(run.handle, run.rules, 0, 1, NOW)
    assert not plans.asks_packed(run.handle, run.rules, 0, 2, NOW)
    assert estimates.is_loaded(run.handle, run.rules, 0, 1, NOW)


def test_nothing_crosses_a_full_link_twice_and_packed_half_of_it_does() -> None:
    def slowest(approach: str, **changes: Any) -> dict[str, Any]:
        # Three hosts of eight are full in both directions: 1 % of their links is left.
        return run_case(
            case(approach, network__fanout=[8], machines__per_host=1, traffic__mean=93.75,
                 traffic__cv=1.29, traffic__left_share=0.01, **changes)
        )  # fmt: skip

    local = slowest("local-cache")
    plain = slowest("acstor", readpath__load_aware=True, readpath__compress=0)
    packed = slowest("acstor", readpath__load_aware=True)
    # A full host is an owner as well here: what it reads for others crosses its link, too.
    assert plain["boot_p99_s"] <= 1.2 * local["boot_p99_s"]
    assert packed["boot_p99_s"] <= 0.75 * plain["boot_p99_s"]
    assert packed["packed"] > 0
    assert plain["packed"] == 0
