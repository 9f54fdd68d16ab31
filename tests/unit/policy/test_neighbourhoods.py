"""Orders of hints against the golden places that Rust reads too, and the plan of an image."""

import json
import pathlib
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.native import RingHost, build_ring
from acstor.policy import neighbourhood_plan, plugins
from acstor.policy.neighbourhoods.base import Neighbourhood
from acstor.policy.neighbourhoods.k_ring import KRing
from acstor.policy.neighbourhoods.ring import Ring
from acstor.policy.neighbourhoods.topology import Topology
from acstor.policy.neighbourhoods.tree import Tree

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "neighbourhoods.json"
CASES = json.loads(GOLDEN.read_text())["cases"]
ORDERS: dict[str, type[Neighbourhood]] = {
    "ring": Ring,
    "k-ring": KRing,
    "tree": Tree,
    "topology": Topology,
}
IMAGE = uuid.UUID("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0")


@pytest.fixture(autouse=True)
def orders(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, fan_out: int) -> Neighbourhood:
        if name not in ORDERS:
            raise exception.UnsupportedError(f"there is no {name!r}")
        return ORDERS[name](fan_out)

    # Entry points are those of what is installed.
    monkeypatch.setattr(plugins, "neighbourhood", made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['order']}-{case['fan_out']}")
def test_parents_are_the_golden_ones(case: dict[str, Any]) -> None:
    neighbourhood = ORDERS[case["order"]](case["fan_out"])
    racks = case["racks"]
    parents = [neighbourhood.parent(position, racks) for position in range(len(racks))]
    assert parents == case["parents"]


def test_plan_has_one_rendezvous_and_everybody_hears_of_somebody() -> None:
    hosts = [RingHost(f"h{n}", f"10.0.0.{n}:1", 1, f"pod/rack-{n // 3}") for n in range(9)]
    ring = build_ring(hosts, 64, 1)
    for order in ORDERS:
        places = neighbourhood_plan.places(ring, IMAGE, order, 2)
        assert [place.host for place in places] == [f"h{n}" for n in range(9)]
        assert sorted({place.part for place in places}) == ["candidate", "member", "rendezvous"]
        assert sum(place.part == "rendezvous" for place in places) == 1
        known = {place.host for place in places}
        assert all(place.hears_of in known for place in places)
        assert max(place.hops for place in places) == {"ring": 9, "k-ring": 5}.get(order, 3)


def test_plan_of_an_unknown_order_is_refused() -> None:
    ring = build_ring([RingHost("h0", "10.0.0.1:1", 1)], 16, 1)
    with pytest.raises(exception.UnsupportedError):
        neighbourhood_plan.places(ring, IMAGE, "star", 2)
