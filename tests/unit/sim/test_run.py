"""Whole runs: what must come out of them whatever the traffic."""

from typing import Any

import numpy as np
import pytest

from sim import programs
from sim.approaches import APPROACHES
from sim.exception import ScenarioError
from sim.run import finish, prepare, run_case
from testbed import boot_trace
from tests.unit.sim.small_runs import case

TRACE = boot_trace.load(programs.TRACES / "debian-12-boot.jsonl")
READS = TRACE.reads[programs.FIRST_READ :]
CHUNK = 65536


def wanted_chunks() -> int:
    """Return how many chunks with content the trace's guest reads."""
    zeros = programs.zero_digests(TRACE)
    touched: set[int] = set()
    for read in READS:
        if read.digest != zeros[read.length]:
            end = read.offset + read.length - 1
            touched.update(range(read.offset // CHUNK, end // CHUNK + 1))
    return len(touched)


@pytest.mark.parametrize("approach", APPROACHES)
def test_every_machine_boots(approach: str) -> None:
    result = run_case(case(approach))
    assert result["ended"] == 4
    assert result["failed"] == 0


def test_non_cache_reads_what_guests_read_and_local_cache_each_chunk_once_per_host() -> None:
    zeros = programs.zero_digests(TRACE)
    read = sum(one.length for one in READS if one.digest != zeros[one.length])
    result = run_case(case("non-cache"))
    assert result["origin_mb"] == pytest.approx(4 * read / 1e6)
    result = run_case(case("local-cache"))
    assert result["origin_mb"] == pytest.approx(4 * wanted_chunks() * CHUNK / 1e6)


def test_collaborating_hosts_read_each_chunk_once() -> None:
    result = run_case(case("static-collaborative"))
    assert result["origin_mb"] == pytest.approx(wanted_chunks() * CHUNK / 1e6)
    assert result["origin_again_mb"] == 0


def test_one_machine_alone_takes_the_time_of_its_bytes_and_round_trips() -> None:
    result = run_case(case("local-cache", network__fanout=[1]))
    chunks = wanted_chunks()
    transfer = chunks * CHUNK * 1.05 / 1.25e8
    assert transfer < result["boot_mean_s"] < transfer + 1.2e-3 * len(READS)


def test_same_seed_same_run() -> None:
    one, two = (
        run_case(case("acstor", machines__per_host=3, traffic__mean=50.0, traffic__cv=0.5))
        for _ in range(2)
    )
    for key in ("boot_mean_s", "boot_p99_s", "origin_mb", "events", "hedges", "cv_series"):
        assert one[key] == two[key], key


def test_quantum_changes_little() -> None:
    times = {}
    for quantum in (0.0, 0.002):
        found = run_case(
            case(
                "static-collaborative", machines__per_host=4, network__fanout=[8],
                traffic__mean=60.0, traffic__cv=0.6, machines__think_scale=0.02,
                readpath__quantum=quantum,
            )
        )  # fmt: skip
        times[quantum] = found["boot_mean_s"]
    assert times[0.002] == pytest.approx(times[0.0], rel=0.05)


def test_links_are_never_overfull_on_average() -> None:
    run = prepare(case("static-collaborative", machines__per_host=6))
    run.simulation.advance(0.5)
    for direction in ("moved_in", "moved_out"):
        moved = np.frombuffer(run.simulation.counters()[direction])
        assert (moved <= 0.5 * 1.25e8 * 1.02).all()


def test_dead_hosts_are_gone_round() -> None:
    result = run_case(
        case(
            "acstor", network__fanout=[8], machines__think_scale=0.02, faults__leave_share=0.5,
            faults__leave_at=0.3,
        )
    )  # fmt: skip
    assert result["ended"] == 4
    assert result["failed"] == 4, "the machines of the hosts that left"
    assert result["read_errors"] == 0


def test_after_a_remap_the_pool_is_asked_and_not_the_origin() -> None:
    settled = case(
        "acstor", network__fanout=[8], machines__per_host=2, traffic__mean=60.0, traffic__cv=1.2,
        traffic__pattern="step", traffic__change_at=50.0, machines__think_scale=3.0,
        readpath__hedge_enabled=False, readpath__load_aware=False,
        machines__first_read=0,
        machines__stagger=60.0,  # some boot before the remap and some after it
    )  # fmt: skip
    run = prepare(settled)
    result = finish(run)
    assert result["generations"] >= 1
    assert result["remap_misses"] > 0
    assert result["tier_previous_owner_mb"] > 0
    assert result["origin_again_remap_mb"] <= 0.05 * result["origin_mb"]


def test_full_store_keeps_the_newest() -> None:
    run = prepare(case("local-cache", machines__capacity_chunks=64))
    finish(run)
    assert run.simulation.held() == [64] * 4


def test_warm_pool_reads_nothing_from_the_origin() -> None:
    result = run_case(case("static-collaborative", machines__warm=True))
    assert result["origin_mb"] == 0


def test_traffic_without_congestion_control_slows_more() -> None:
    means = []
    for share in (0.0, 1.0):
        found = run_case(
            case(
                "static-collaborative", machines__per_host=4, network__fanout=[8],
                traffic__mean=90.0, traffic__cv=0.9, traffic__udp_share=share,
            )
        )  # fmt: skip
        means.append(found["boot_mean_s"])
    assert means[1] > means[0]


def test_extra_traffic_gets_what_it_wants_while_nothing_else_moves() -> None:
    run = prepare(
        case("acstor", machines__per_host=0, traffic__mean=60.0, traffic__cv=0.8,
             traffic__udp_share=0.5, timing__end=30.0)
    )  # fmt: skip
    finish(run)
    counters = {name: np.frombuffer(one) for name, one in run.simulation.counters().items()}
    carried = (counters["extra_in"] + counters["extra_out"]) / 30.0
    assert np.allclose(carried, run.extra.host_traffic(4), rtol=1e-6)
    _, rates = run.simulation.reports()
    reported = np.frombuffer(rates).reshape(4, 4)[:, :2].sum(axis=1)
    assert np.allclose(reported, run.extra.host_traffic(4), rtol=0.01)


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


def test_copies_of_the_hosts_that_read_do_not_push_out_what_the_pool_has() -> None:
    """With the oldest leaving they do: the pool's chunks came before all copies of them."""
    again = {}
    for eviction in ("s3fifo", "fifo"):
        result = run_case(
            case(
                "acstor", network__fanout=[8], machines__per_host=5, machines__image_mib=16,
                machines__workload="web-server", machines__capacity_chunks=48,
                machines__warm=True, timing__end=20.0, readpath__eviction=eviction,
            )
        )  # fmt: skip
        again[eviction] = float(result["origin_again_mb"]) + float(result["origin_mb"])
    assert again["s3fifo"] < 0.4 * again["fifo"]


def test_firmware_pause_is_left_out_unless_a_scenario_keeps_it() -> None:
    without, whole = (
        run_case(case("local-cache", machines__think_scale=0.1, **changes))
        for changes in ({}, {"machines__first_read": 0})
    )
    pause = 1e-7 * sum(read.think_us for read in TRACE.reads[: programs.FIRST_READ + 1])
    assert pause > 1.0
    assert whole["think_mean_s"] - without["think_mean_s"] == pytest.approx(pause)
    assert whole["boot_mean_s"] - without["boot_mean_s"] == pytest.approx(pause, rel=0.05)
    assert without["boot_over_think"] == without["boot_mean_s"] / without["think_mean_s"]
    with pytest.raises(ScenarioError, match="first_read"):
        run_case(case("local-cache", machines__first_read=100_000))


def ahead(profile: str, **changes: Any) -> dict[str, Any]:
    return run_case(
        case(
            "acstor", network__fanout=[8], machines__think_scale=0.1, readahead__profile=profile,
            readpath__quantum=0.0, readpath__sender_answers=4, readpath__origin_reads=4,
            readpath__classes=True, readpath__hedge_enabled=False, **changes,
        )
    )  # fmt: skip


def test_right_profile_brings_a_boot_near_its_think_time() -> None:
    none, right = ahead("none"), ahead("right")
    assert none["ahead_mb"] == 0
    assert right["boot_over_think"] < 1.3 < none["boot_over_think"]
    assert right["origin_over_union"] < 1.02
    assert right["ahead_wasted_mb"] == 0
    assert right["promoted"] > 0


def test_profile_of_another_image_costs_its_floor_and_no_more() -> None:
    none, other = ahead("none"), ahead("other")
    assert other["ahead_wasted_mb"] == other["ahead_mb"] <= 8 * 4.2
    assert other["boot_mean_s"] <= 1.05 * none["boot_mean_s"]


def test_other_approaches_read_nothing_ahead() -> None:
    result = run_case(case("static-collaborative", readahead__profile="right"))
    assert result["ahead_mb"] == 0


def test_turns_want_exact_rates() -> None:
    with pytest.raises(ScenarioError, match="quantum = 0"):
        run_case(case("acstor", readpath__sender_answers=4))


def test_slow_processors_slow_boots() -> None:
    fast, slow = (run_case(case("static-collaborative", network__cpu=cpu)) for cpu in (0.0, 40.0))
    assert slow["boot_mean_s"] > 1.5 * fast["boot_mean_s"]
    with pytest.raises(ScenarioError, match=r"network\.cpu"):
        run_case(case("static-collaborative", network__cpu=-1.0))


def test_measured_share_of_a_full_link_grows_with_what_moves_over_it() -> None:
    """One guest alone gets less of a full link than many."""

    def mean(share: float | str, machines: int) -> float:
        result = run_case(
            case("static-collaborative", network__fanout=[8], machines__per_host=machines,
                 machines__images=5, traffic__mean=93.75, traffic__cv=1.29,
                 traffic__left_share=share)
        )  # fmt: skip
        return float(result["boot_mean_s"])

    assert mean("measured", 1) > mean(0.17, 1)
    for wrong in ("some", -0.1, 2.0):
        with pytest.raises(ScenarioError, match="left_share"):
            mean(wrong, 1)


@pytest.mark.parametrize("exchange", ["ring", "k-ring", "tree"])
def test_later_boots_follow_what_the_first_one_missed(exchange: str) -> None:
    none, told = (
        ahead("none", readpath__exchange=one, machines__stagger=8.0) for one in ("none", exchange)
    )
    assert none["hints"] == 0
    assert told["hints"] >= wanted_chunks()
    assert told["boot_mean_s"] < 0.95 * none["boot_mean_s"]
    assert told["origin_over_union"] < 1.02


def test_unknown_order_of_hints_is_refused() -> None:
    with pytest.raises(ScenarioError, match="exchange"):
        ahead("none", readpath__exchange="star")
