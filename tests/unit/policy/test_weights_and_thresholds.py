"""Plug-ins: the paper's equation and algorithm, what is ours, forecasts, the topology."""

import pathlib

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
    # A rack sends 400; of the 15 others of each of its hosts 12 are elsewhere.
    assert [round(edge.up / MBIT) for edge in edges] == [320] * 4
    assert [round(edge.forwarded / MBIT) for edge in edges] == [720] * 4
    # A pod sends 800, of which 8 of 15 leave it; what its racks let up is 640.
    assert [round(each.up / MBIT) for each in aggregates] == [427] * 2
    assert [round(each.forwarded / MBIT) for each in aggregates] == [640 + 427] * 2
    assert round(root.forwarded / MBIT) == 853
    assert root.up == 0


def test_host_alone_under_a_switch_has_no_traffic_with_itself() -> None:
    topology = Topology.parse(TREE).with_hosts({"h1": "p1/r1", "h2": "p1/r2", "h3": "p2/r1"})
    loads = {"h1": load(0, 100), "h2": load(100, 0), "h3": load(0, 0)}
    edges, aggregates, (root,) = switch_loads.estimate(loads, topology)
    assert [round(edge.up / MBIT) for edge in edges] == [0, 100, 0]
    assert [round(edge.down / MBIT) for edge in edges] == [100, 0, 0]
    assert [round(each.forwarded / MBIT) for each in aggregates] == [100, 0]
    assert [round(each.up / MBIT) for each in aggregates] == [0, 0]
    assert root.forwarded == 0
    (only,) = switch_loads.estimate({"h1": load(70)}, topology)[0]
    assert round(only.up / MBIT) == 70


def test_no_uplink_carries_more_than_it_can() -> None:
    """Traffic that a full uplink does not let through is not counted above it."""
    topology = tree(pods=2, racks=2, hosts=4)
    edges, aggregates, (root,) = switch_loads.estimate(
        {name: load(900, 900) for name in topology.hosts}, topology
    )
    # A rack would send up 2880 of its 3600, a pod 3840: more than 1000, and more than 1333 of
    # what its two racks let through.
    assert [round(edge.up / MBIT) for edge in edges] == [1000] * 4
    assert [round(edge.forwarded / MBIT) for edge in edges] == [4600] * 4
    assert [round(each.up / MBIT) for each in aggregates] == [1000] * 2
    assert [round(each.forwarded / MBIT) for each in aggregates] == [3000] * 2
    assert round(root.forwarded / MBIT) == 2000


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


def paper_tree(**speed: float) -> Topology:
    """Return the tree of section 5.8: 4 x 8 x 8 hosts, 1 Gbit/s, and 10 Gbit/s at the root."""
    levels = [dict(speed) for _ in range(2)]
    topology = Topology.parse({"version": 1, "levels": [*levels, {"capacity": 10_000}]})
    spread = tree(pods=4, racks=8, hosts=8)
    return topology.with_hosts({host: "/".join(path) for host, path in spread.hosts.items()})


@pytest.mark.parametrize(
    ("rate", "threshold"),
    [
        # Of its 255 others, 248 are outside of a host's rack and 192 outside of its pod. With x
        # sent and received by each, an edge switch forwards 8x + 8x 248/255 = 15.8x, an aggregate
        # switch 8 * 8x 248/255 + 64x 192/255 = 110.4x, the root 4 * 64x 192/255 = 192.8x.
        (7.0, None),  # 110, 773, 1349
        (7.5, 3),  # 118, 828 of 1000
        (50.0, 3),  # 789, and the root 9638 of 10,000: the aggregates come first
        (51.0, 1),  # 805 of 1000
    ],
)
def test_algorithm_2_as_printed_on_the_tree_of_the_paper(
    rate: float, threshold: int | None
) -> None:
    assert choose("algorithm2", paper_tree(capacity=1000), rate, threshold_min=1) == threshold


def test_algorithm_2_never_leaves_everything_to_the_origin_by_default() -> None:
    assert choose("algorithm2", paper_tree(capacity=1000), 51.0) == 3
    assert choose("algorithm2", None, 400) is None


@pytest.mark.parametrize(
    ("rate", "threshold"),
    [
        (16.5, None),  # of an aggregate's 1000: 64x 192/255 = 48.2x = 795
        (17.0, 5),  # 819: hosts of the same pod need no such link
        (102.0, 5),  # of an edge's 1000: 8x 248/255 = 7.78x = 794
        (104.0, 3),  # 809: those of the same rack do not even need that
    ],
)
@pytest.mark.parametrize("policy", ["algorithm2", "uplinks"])
def test_busy_uplinks_keep_away_who_is_behind_them_and_nobody_else(
    policy: str, rate: float, threshold: int | None
) -> None:
    assert choose(policy, paper_tree(uplink=1000), rate, threshold_min=1) == threshold


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
    for policy in ("uplinks", "algorithm2"):
        assert choose(policy, topology, 240) is None  # 768 of 1000
        assert choose(policy, topology, 240, in_force=3) == 3
        assert choose(policy, topology, 150, in_force=3) is None


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
