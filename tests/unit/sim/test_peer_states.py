"""Peers that failed, and probes of loaded ones."""

import pytest

from sim import estimates, flights, peer_states, slow_looks
from sim.run import Run, prepare
from sim.world import HEDGES, LIVE, PROBED
from tests.unit.sim.small_runs import case
from tests.unit.sim.test_estimates import NOW, ORIGIN_HOST, know
from tests.unit.sim.test_plans import LINE_FIRST, overload, plan, run

__all__ = ["run"]


@pytest.fixture
def pair(run: Run) -> int:
    """Return the row of a peer that answered once."""
    row = int(estimates.row_of(run.handle, 0, 1))
    run.world.answered_at[row] = NOW
    return row


def test_failed_peer_is_left_alone_for_a_growing_time(run: Run, pair: int) -> None:
    handle, world, now = run.handle, run.world, NOW
    waits = []
    for _ in range(8):
        assert peer_states.admit(handle, run.rules, pair, now)
        # Well before the trial's time is over.
        peer_states.note_failure(handle, pair, now + 0.1)
        peer_states.note_failure(handle, pair, now + 0.1)
        assert not peer_states.admit(handle, run.rules, pair, now + 0.1)
        waits.append(float(world.peer_until[pair]) - now - 0.1)
        now = float(world.peer_until[pair])
    for number, wait in enumerate(waits):
        full = min(10.0, 0.25 * 2**number)
        assert full / 2 <= wait + 1e-9
        assert wait <= full + 1e-9
    assert peer_states.admit(handle, run.rules, pair, now), "on trial"
    assert not peer_states.admit(handle, run.rules, pair, now), "one at a time"
    assert peer_states.admit(handle, run.rules, pair, now + run.rules.peer_deadline)
    peer_states.note_answer(handle, pair)
    assert peer_states.admit(handle, run.rules, pair, now)


def test_connection_to_a_dead_peer_is_given_up_and_then_one_fetch_waits(
    run: Run, pair: int
) -> None:
    def silence(at: float) -> float:
        return float(peer_states.silence(run.handle, run.rules, pair, at))

    assert silence(NOW) == 3.0
    assert silence(NOW + 2.0) == 1.0, "the connection stands"
    assert silence(NOW + 3.0) == 0.0, "given up"
    for number in range(1, 9):
        due = float(run.world.link_until[pair])
        assert silence(due) == run.rules.connect_timeout, "the next one is made"
        assert silence(due + 0.1) == 0.0, "nobody else waits for it"
        full = min(10.0, 0.1 * 2**number)
        wait = float(run.world.link_until[pair]) - due - run.rules.connect_timeout
        assert full / 2 <= wait + 1e-9
        assert wait <= full + 1e-9


def test_dead_peer_that_never_answered_is_connected_to(run: Run) -> None:
    row = int(estimates.row_of(run.handle, 0, 3))
    run.world.answered_at[row] = -1e9
    assert peer_states.silence(run.handle, run.rules, row, NOW) == run.rules.connect_timeout


def probed_flight(run: Run) -> int:
    """Let host 0 ask peer 2 and probe peer 1, which is loaded."""
    overload(run, 1)
    run.world.view_at[0] = -1.0
    flight = int(flights.new_flight(run.handle, run.rules, 0, 0, 65536.0, NOW))
    run.world.flight_wanted[flight] = 1
    flights.ask_next(run.handle, run.rules, flight, NOW, False)
    probe = int(run.world.flight_attempts[flight, PROBED])
    assert run.world.attempt_source[probe] == 1
    return flight


def test_probe_holds_up_nothing(run: Run) -> None:
    flight = probed_flight(run)
    world = run.world
    assert world.flight_running[flight] == 1
    asked = int(world.flight_attempts[flight, 0])
    run.world.hedge_tokens[0] = 16.0
    flights.hedge(run.handle, run.rules, asked, NOW + 1.0)
    assert world.totals[HEDGES] == 1
    hedge = int(world.flight_attempts[flight, 1])
    assert world.attempt_source[hedge] == ORIGIN_HOST
    flights.failed(run.handle, run.rules, hedge, NOW + 1.0, False, False)
    flights.failed(run.handle, run.rules, asked, NOW + 1.0, True, False)
    assert world.flight_running[flight] == 0, "the next in line is asked"
    probe = int(world.flight_attempts[flight, PROBED])
    flights.failed(run.handle, run.rules, probe, NOW + 2.0, True, False)
    assert world.peer_state[world.attempt_row[probe]] == peer_states.TRUSTED
    assert world.cursor[LIVE] == 0


def test_probe_ends_with_its_flight(run: Run) -> None:
    flight = probed_flight(run)
    flights.arrived(run.handle, run.rules, int(run.world.flight_attempts[flight, 0]), NOW + 0.01)
    assert run.world.cursor[LIVE] == 0


def test_penalised_peer_is_skipped() -> None:
    run = prepare(case("acstor", network__fanout=[8], readpath__load_aware=True))
    run.world.line[:] = [1, 2, 3, 4]
    run.world.clock[0] = NOW
    know(run, ORIGIN_HOST, 0.002, 0.002)
    assert plan(run) == LINE_FIRST
    peer_states.note_failure(run.handle, int(estimates.row_of(run.handle, 0, 1)), NOW)
    flight = int(flights.new_flight(run.handle, run.rules, 0, 0, 65536.0, NOW))
    run.world.flight_wanted[flight] = 1
    flights.ask_next(run.handle, run.rules, flight, NOW, False)
    assert run.world.attempt_source[run.world.flight_attempts[flight, 0]] == 2


@pytest.mark.parametrize(("waited", "is_slow"), [(1.0, True), (0.001, False)])
def test_connection_that_failed_late_is_silence(waited: float, is_slow: bool) -> None:
    run = prepare(case("acstor", network__fanout=[8], readpath__load_aware=True))
    world, row = run.world, int(estimates.row_of(run.handle, 0, 1))
    world.line[:] = [1, 2, 3, 4]
    world.clock[0] = NOW
    know(run, ORIGIN_HOST, 0.002, 0.002)
    world.is_alive[1] = False
    flight = int(flights.new_flight(run.handle, run.rules, 0, 0, 65536.0, NOW))
    world.flight_wanted[flight] = 1
    flights.ask_next(run.handle, run.rules, flight, NOW, False)
    asked = int(world.flight_attempts[flight, 0])
    assert world.attempt_row[asked] == row
    # Nobody waits for a connection now: the fetch fails when it is asked for.
    world.link_failures[row] = 1
    world.link_until[row] = NOW + 10.0
    assert not flights.answered(run.handle, run.rules, asked, NOW + waited)
    assert (slow_looks.slow_for(run.handle, run.rules, row) >= run.rules.loaded_lasting) is is_slow
    assert world.peer_state[row] == peer_states.PENALISED
