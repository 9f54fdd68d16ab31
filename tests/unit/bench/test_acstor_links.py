"""Measurements of links by the evaluation: plans, order of a queueing burst, tables."""

import socket
import threading

import pytest

from bench.acstor import convoys, link_shares
from bench.acstor.convoys import Convoy
from bench.acstor.images import CHUNK_SIZE
from bench.acstor.link_shares import PARTNERS, Share
from sim.run import run_case
from tests.unit.sim.small_runs import case

LINK = 5e6


def test_first_host_of_each_group_has_the_load_both_ways_and_nobody_else_more() -> None:
    size = PARTNERS + 1
    sent: dict[int, float] = {}
    received: dict[int, float] = {}
    for flow in link_shares.flows(2, 0.9, LINK):
        assert flow.source // size == flow.target // size
        sent[flow.source] = sent.get(flow.source, 0.0) + flow.rate
        received[flow.target] = received.get(flow.target, 0.0) + flow.rate
    for host in range(2 * size):
        wanted = 0.9 * LINK if host % size == 0 else 0.9 * LINK / PARTNERS
        assert [sent[host], received[host]] == pytest.approx([wanted, wanted])


def test_chunk_is_there_when_all_its_bytes_are_and_not_when_the_other_end_closes() -> None:
    ours, theirs = socket.socketpair()
    counted: list[int] = []

    def serve(count: int) -> None:
        theirs.recv(1 << 16)
        theirs.sendall(bytes(count))
        if count < CHUNK_SIZE:
            theirs.shutdown(socket.SHUT_WR)

    for count, is_whole in ((CHUNK_SIZE, True), (CHUNK_SIZE - 1, False)):
        thread = threading.Thread(target=serve, args=(count,))
        thread.start()
        counted.clear()
        assert link_shares.ask(ours, counted.append) is is_whole
        assert sum(counted) == count
        thread.join()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("count", [2, 20])
def test_convoy_comes_together_when_shared_fairly_and_one_by_one_in_order(count: int) -> None:
    assert convoys.mean_over_last(0.0, count) == pytest.approx(1.0)
    assert convoys.mean_over_last(1.0, count) == pytest.approx((count + 1) / 2 / count)
    for share in (0.1, 0.5, 0.9):
        ratio = convoys.mean_over_last(share, count)
        assert convoys.in_order_of(ratio, count) == pytest.approx(share, abs=1e-6)


def test_tables_have_medians_of_the_turns() -> None:
    shares = [
        Share("cubic", link_shares.FETCHES, 4, load, turn, 0.1 * (turn + 1), 0.2)
        for load in (0.9, 1.0)
        for turn in range(3)
    ]
    header, row = link_shares.table(shares)
    assert header[:5] == ["TCP", "the host", "connections", "at 90%", "at 100%"]
    assert row == ["cubic", "fetches", "4", *["0.200 (0.100-0.300)"] * 2, "200", "200"]
    times = [[0.1, 0.2], [0.2, 0.2], [0.12, 0.2]]
    header, row = convoys.table([Convoy("bbr", 0.0, one) for one in times])
    assert row[:5] == ["bbr", "0%", "2", "200", "0.80"]
    assert float(row[5]) == pytest.approx(convoys.in_order_of(0.8, 2), abs=0.01)


def test_kernel_has_a_congestion_control_that_is_measured() -> None:
    assert set(link_shares.available()) <= set(link_shares.CONGESTION_CONTROLS)
    assert link_shares.available(["none-such"]) == ()


def test_simulator_ends_waiting_sooner_where_who_asked_first_is_served_first() -> None:
    means = [
        run_case(
            case(
                "static-collaborative", machines__per_host=3, network__fanout=[6],
                network__rates=["40mbit"], network__in_order=share, readpath__quantum=0.0,
                readpath__peer_deadline=60.0, readpath__read_deadline=600.0,
                machines__stagger=0.01,
            )
        )["boot_mean_s"]
        for share in (0.0, 0.9)
    ]  # fmt: skip
    assert means[1] < 0.95 * means[0]
