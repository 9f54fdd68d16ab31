"""The lines in the tables are those of the real ring."""

from typing import Any

import numpy as np
import pytest

from acstor.native import build_ring
from sim import rings, topology
from sim.exception import ScenarioError
from sim.run import Run, prepare, run_case
from sim.topology import host_name
from tests.unit.sim.small_runs import case


@pytest.mark.parametrize("threshold", [None, 7, 5, 4, 3, 2])
def test_line_is_that_of_the_ring(threshold: int | None) -> None:
    run = prepare(
        case("acstor", network__fanout=[2, 3, 4], network__rates=["1gbit"] * 3)
    )  # fmt: skip
    ring = build_ring(rings.ring_hosts(run.topology), 4096, 3)
    run.simulation.use_ring(rings.install(run.simulation, run.topology, ring, threshold))
    random = np.random.default_rng(1)
    for _ in range(200):
        host = int(random.integers(24))
        content = int(random.integers(run.programs.content_count))
        oid = int(run.programs.oids[run.programs.placement[content]])
        names, _ = ring.candidates(oid, host_name(host), threshold, 4)
        assert [host_name(one) for one in run.simulation.line(host, content)] == names


def test_positions_are_the_trees() -> None:
    tree = topology.build(topology.TreeSpec((2, 3, 4), (1.0, 1.0, 1.0)))
    assert tree.position(0) == "s0/s0"
    assert tree.position(23) == "s1/s2"
    assert len({tree.position(host) for host in range(24)}) == 6


def test_threshold_that_leaves_every_host_alone_is_refused() -> None:
    run = prepare(case("acstor", network__fanout=[2, 4], network__rates=["1gbit"] * 2))
    ring = build_ring(rings.ring_hosts(run.topology), 4096, 3)
    with pytest.raises(ScenarioError, match="admits no peer"):
        rings.install(run.simulation, run.topology, ring, 1)


def test_plain_threshold_holds_until_a_decision_says_another() -> None:
    fields: dict[str, Any] = {"network__fanout": [2, 2, 2], "network__rates": ["1gbit"] * 3}
    run = prepare(case("acstor", readpath__distance_threshold=3, **fields))
    assert asked(run) == {0, 1}, "those of its rack"
    assert asked(prepare(case("acstor", **fields))) > {0, 1}


def asked(run: Run) -> set[int]:
    """Return whom host 0 asks for anything."""
    contents = range(run.programs.content_count)
    return {host for content in contents for host in run.simulation.line(0, content)}


@pytest.mark.parametrize(("declared", "threshold"), [("uplinks", None), ("capacities", 3)])
def test_tree_is_declared_as_the_scenario_says(declared: str, threshold: int | None) -> None:
    """Of 6.25 MB/s an edge switch forwards 4 + 4 * 12/15, and sends up 3.2, a pod's 4.3."""
    result = run_case(
        case(
            "acstor", network__fanout=[2, 2, 4], network__rates=["50mbit", "50mbit", "1gbit"],
            network__declared=declared, machines__per_host=0, traffic__mean=2.0, traffic__cv=0.0,
            policy__thresholds="algorithm2", timing__end=60.0,
        )
    )  # fmt: skip
    assert result["threshold"] == threshold


def test_unknown_declaration_is_refused() -> None:
    with pytest.raises(ScenarioError, match="declared"):
        prepare(case("acstor", network__declared="nothing"))
