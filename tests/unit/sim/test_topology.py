"""Paths through a tree, and that the ring sees the same distances."""

import pytest

from acstor.native import build_ring
from sim import rings, topology
from sim.exception import ScenarioError
from sim.topology import GIGABIT, TreeSpec

PAPER = TreeSpec((4, 8, 8), (GIGABIT,) * 3, root_rate=10 * GIGABIT)


def test_links_are_those_of_the_papers_tree() -> None:
    tree = topology.build(PAPER).tree
    assert tree.path(0, 0) == []
    assert len(tree.path(0, 64)) == 7, "and the root's own capacity"
    assert len(tree.capacity) == 2 * (256 + 32 + 4) + 1 + 2
    apart = topology.build(TreeSpec((4, 8, 8), (GIGABIT,) * 3, storage_rate=GIGABIT)).tree
    assert len(apart.path(256, 5)) == 2


def test_distances_of_the_ring_are_those_of_the_tree() -> None:
    tree = topology.build(PAPER)
    ring = build_ring(rings.ring_hosts(tree), 65536, 1)
    for other, hops in ((0, 0), (7, 1), (8, 3), (63, 3), (64, 5), (255, 5)):
        assert ring.distance(topology.host_name(0), topology.host_name(other)) == hops


@pytest.mark.parametrize(
    "spec",
    [{"fanout": (4, 8), "rates": (1.0,)}, {"fanout": (0,)}, {"fanout": (70_000,)}, {"rates": (0,)}],
)
def test_what_is_no_tree_is_refused(spec: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ScenarioError):
        TreeSpec(**spec)  # type: ignore[arg-type]
