"""Plug-ins: the paper's equation and algorithm, what is ours, forecasts, the topology."""

import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.policy import plugins, switch_loads
from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology

MBIT = 1e6 / 8
TREE = {
    "version": 1,
    "levels": [
        {"name": "edge", "uplink": 1000},
        {"name": "aggregate", "uplink": 1000},
        {"name": "root", "capacity": 10_000},
    ],
}


def load(sent: float, received: float = 0.0, link: float = 1000) -> HostLoad:
    """Return a load; Mbit/s."""
    return HostLoad(received * MBIT, sent * MBIT, link=link * MBIT)


def weigh(name: str, loads: dict[str, HostLoad], **settings: object) -> dict[str, float]:
    return plugins.weight_policy(PolicySettings(weights=name, **settings)).weigh(loads)  # type: ignore[arg-type]


def test_equation_1_as_printed() -> None:
    loads = {"a": load(100, 100), "b": load(300, 100), "c": load(200, 0)}
    assert weigh("equation1", loads) == {"a": 6, "b": 3, "c": 6}  # 1.67 * 800 / 200, / 400, / 200
    assert weigh("equation1", loads, weight_lambda=3) == {"a": 12, "b": 6, "c": 12}


def test_hosts_without_traffic_are_alike_and_not_infinite() -> None:
    loads = {"a": load(0), "b": load(10), "c": load(950)}
    found = weigh("equation1", loads)
    assert found["a"] == found["b"] == 35  # 1.67 * (50 + 50 + 950) / 50
    assert found["c"] == 1


@pytest.mark.parametrize(("traffic", "ratio"), [("in", 4), ("out", 1), ("sum", 1.6), ("max", 1)])
def test_direction_of_traffic_is_a_choice(traffic: str, ratio: float) -> None:
    loads = {"a": load(400, 100), "b": load(400, 400)}
    found = weigh("equation1", loads, traffic=traffic, weight_lambda=1000)
    assert found["a"] / found["b"] == pytest.approx(ratio, rel=0.01)


def test_headroom_is_what_is_left_of_each_link() -> None:
    loads = {"a": load(500), "b": load(0), "c": load(0, link=10_000), "d": load(1000)}
    found = weigh("headroom", loads)
    assert [found[name] / found["a"] for name in "bcd"] == [2, 20, 0.01]
    floored = weigh("headroom", loads, traffic_floor=0.05)
    assert floored["d"] / floored["a"] == 0.1


def test_unknown_plug_in_is_named_with_what_there_is() -> None:
    with pytest.raises(exception.UnsupportedError, match="nonsense") as caught:
        plugins.weight_policy(PolicySettings(weights="nonsense"))
    assert "equation1" in caught.value.hint


def tree(*, pods: int = 2, racks: int = 2, hosts: int = 4) -> Topology:
    return Topology.parse(TREE).with_hosts(
        {
            f"h{pod}-{rack}-{host}": f"p{pod}/r{rack}"
            for pod in range(pods)
            for rack in range(racks)
            for host in range(hosts)
        }
    )


def test_estimates_follow_the_gravity_model() -> None:
    topology = tree()
    loads = {name: load(100, 100) for name in topology.hosts}  # 16 hosts, 1600 in all
    edges, aggregates, (root,) = switch_loads.estimate(loads, topology)
    # A rack sends 400, and receives a quarter of everything: 300 leave it.
    assert [round(edge.up / MBIT) for edge in edges] == [300] * 4
    assert [round(edge.forwarded / MBIT) for edge in edges] == [700] * 4
    # A pod sends 800, half of which stays.
    assert [round(each.up / MBIT) for each in aggregates] == [400] * 2
    assert [round(each.forwarded / MBIT) for each in aggregates] == [1000] * 2
    assert round(root.forwarded / MBIT) == 800
    assert root.up == 0


def test_what_leaves_the_data_centre_passes_the_root() -> None:
    topology = tree()
    _, aggregates, (root,) = switch_loads.estimate(
        {name: load(100) for name in topology.hosts}, topology
    )
    assert [round(each.up / MBIT) for each in aggregates] == [800] * 2
    assert round(root.forwarded / MBIT) == 1600


def choose(
    name: str, topology: Topology | None, rate: float, in_force: int | None = None, **more: object
) -> int | None:
    policy = plugins.threshold_policy(PolicySettings(thresholds=name, **more))  # type: ignore[arg-type]
    hosts = topology.hosts if topology else ["h1"]
    return policy.choose({host: load(rate, rate) for host in hosts}, topology, in_force)


def test_algorithm_2_as_printed() -> None:
    topology = tree()
    free: dict[str, Any] = {"threshold_min": 1}
    assert choose("algorithm2", topology, 100, **free) is None
    # With 8 racks below each aggregate switch its uplink is busy long before an edge's.
    wide = tree(pods=4, racks=8, hosts=2)
    assert choose("algorithm2", wide, 80, **free) == 3
    assert choose("algorithm2", topology, 400, **free) == 1
    assert choose("algorithm2", topology, 400) == 3  # never everything from the origin
    assert choose("algorithm2", None, 400) is None


def test_root_alone_gives_5() -> None:
    topology = Topology.parse({**TREE, "levels": [*TREE["levels"][:2], {"capacity": 100}]})  # type: ignore[index]
    spread = tree()
    topology = topology.with_hosts({h: "/".join(path) for h, path in spread.hosts.items()})
    assert choose("algorithm2", topology, 50) == 5
    assert choose("uplinks", topology, 50) == 5


def test_uplinks_name_the_hosts_behind_them() -> None:
    topology = tree()
    assert choose("uplinks", topology, 100) is None
    assert choose("uplinks", topology, 300) == 3  # uplinks of racks: 900 of 1000
    wide = tree(pods=4, racks=8, hosts=2)
    assert choose("uplinks", wide, 80) == 5  # uplinks of pods


def test_threshold_stays_until_the_load_is_clearly_lower() -> None:
    topology = tree(pods=1, racks=4)
    assert choose("uplinks", topology, 250) is None  # 750 of 1000
    assert choose("uplinks", topology, 250, in_force=3) == 3
    assert choose("uplinks", topology, 150, in_force=3) is None


def test_none_is_no_threshold() -> None:
    assert choose("none", tree(), 1000) is None


def test_holt_follows_a_ramp_and_no_forecast_the_last_value() -> None:
    holt = plugins.forecast(PolicySettings(forecast="holt", horizon=2))
    none = plugins.forecast(PolicySettings())
    series = last = None
    for value in range(0, 1000, 100):
        series, last = holt.advance(series, float(value)), none.advance(last, float(value))
    assert series is not None
    assert last is not None
    assert none.ahead(last) == 900
    assert 900 < holt.ahead(series) < 1200
    for _ in range(20):
        series = holt.advance(series, 0.0)
    assert holt.ahead(series) < 5


def test_topology_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "topology.toml"
    path.write_text(
        """
version = 1
[[levels]]
name = "edge"
uplink = 1000
[[levels]]
name = "root"
capacity = 4000
[switches."rack-2"]
uplink = 2500
[hosts]
h1 = "rack-1"
"""
    )
    topology = Topology.load(str(path)).with_hosts({"h1": "rack-9", "h2": "rack-2", "h3": ""})
    assert topology.switch_above("h1", 0) == ("rack-1",)  # the file has precedence
    assert topology.switch_above("h2", 1) == ()
    assert topology.switch_above("h3", 0) is None
    assert topology.speeds_of(("rack-2",), 0).uplink == 2500 * MBIT
    assert Topology.parse(topology.to_json()) == topology


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version = 2",
        "version = 1",
        "version = 1\nlevels = []",
        'version = 1\nlevels = ["x"]',
        "version = 1\n[[levels]]\nuplink = -1",
        "version = 1\n[[levels]]\nuplink = nan",
        'version = 1\n[[levels]]\nuplink = "fast"',
        "version = 1\nhosts = 3\n[[levels]]\nuplink = 1",
        'version = 1\n[[levels]]\nuplink = 1\n[hosts]\nh1 = "a b"',
        "[[",
    ],
)
def test_malformed_topology_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "topology.toml"
    path.write_text(text)
    with pytest.raises(exception.ConfigurationError):
        Topology.load(str(path))
    with pytest.raises(exception.ConfigurationError):
        Topology.load(str(tmp_path / "none"))
