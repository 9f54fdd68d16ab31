"""The weigher in Nova's own weight handler."""

from typing import Any

import pytest
from nova.scheduler import weights
from nova.scheduler.weights.ram import RAMWeigher
from oslo_config import cfg

from acstor.scheduler.nova.weigher import BootCoverageWeigher
from tests.unit.scheduler.conftest import (
    IMAGE,
    OTHER_IMAGE,
    TTL,
    Deployment,
    nova_host,
    request_spec,
)


def weigh(deployment: Deployment, *hosts: Any, spec: Any = None) -> dict[str, float]:
    """Return the weights by host, in Nova's order, as Nova has them after normalising."""
    weighed = weights.HostWeightHandler().get_weighed_objects(
        [BootCoverageWeigher(deployment.hosts)], list(hosts), spec or request_spec()
    )
    return {each.obj.host: each.weight for each in weighed}


def named(*names: str) -> list[Any]:
    return [nova_host(name) for name in names]


def test_host_that_holds_the_working_set_is_first(deployment: Deployment) -> None:
    deployment.tell("cold", coverage={IMAGE: 0.0})
    deployment.tell("warm", coverage={IMAGE: 1.0})
    found = weigh(deployment, *named("cold", "warm"))
    assert found == pytest.approx({"warm": 0.5, "cold": -0.5})
    assert list(found) == ["warm", "cold"]


def test_small_difference_of_coverage_stays_small(deployment: Deployment) -> None:
    """Nova's stretching to 0..1 would make 1.0 of it."""
    deployment.tell("h1", coverage={IMAGE: 0.90})
    deployment.tell("h2", coverage={IMAGE: 0.91})
    found = weigh(deployment, *named("h1", "h2"))
    assert found["h2"] - found["h1"] == pytest.approx(0.01)


def test_host_on_a_busy_link_comes_after_one_on_an_idle_link(deployment: Deployment) -> None:
    deployment.tell("busy", extra_in=5e8, extra_out=1e9, link_bytes_per_s=1e9)
    deployment.tell("idle", extra_in=0, extra_out=0, link_bytes_per_s=1e9)
    found = weigh(deployment, *named("busy", "idle"))
    assert found == pytest.approx({"idle": 0.25, "busy": -0.25})


def test_coverage_and_traffic_are_weighed_against_each_other(
    deployment: Deployment, nova_conf: cfg.ConfigOpts
) -> None:
    deployment.tell("warm", coverage={IMAGE: 1.0}, extra_in=1e9, link_bytes_per_s=1e9)
    deployment.tell("cold", coverage={IMAGE: 0.2}, extra_in=0, link_bytes_per_s=1e9)
    assert list(weigh(deployment, *named("warm", "cold"))) == ["warm", "cold"]
    nova_conf.set_override("extra_traffic_weight_multiplier", 1.0, "acstor")
    assert list(weigh(deployment, *named("warm", "cold"))) == ["cold", "warm"]
    nova_conf.set_override("boot_coverage_weight_multiplier", 0.0, "acstor")
    nova_conf.set_override("extra_traffic_weight_multiplier", 0.0, "acstor")
    assert weigh(deployment, *named("warm", "cold")) == {"warm": 0.0, "cold": 0.0}


def test_host_that_says_nothing_is_neither_punished_nor_preferred(deployment: Deployment) -> None:
    deployment.tell("warm", coverage={IMAGE: 1.0})
    deployment.tell("half", coverage={IMAGE: 0.5})
    deployment.tell("cold", coverage={IMAGE: 0.0})
    found = weigh(deployment, *named("cold", "silent", "half", "warm"))
    assert found["silent"] == 0.0 == found["half"]
    assert found["cold"] < 0 < found["warm"]


def test_host_alone_in_telling_is_like_the_others(deployment: Deployment) -> None:
    deployment.tell("h1", coverage={IMAGE: 0.0}, extra_in=1e9, link_bytes_per_s=1e9)
    assert set(weigh(deployment, *named("h1", "h2", "h3")).values()) == {0.0}


def test_image_that_no_host_has_a_working_set_of_weighs_nothing(deployment: Deployment) -> None:
    deployment.tell("h1", coverage={OTHER_IMAGE: 1.0})
    deployment.tell("h2", coverage={OTHER_IMAGE: 0.0})
    assert set(weigh(deployment, *named("h1", "h2")).values()) == {0.0}


def test_state_too_old_weighs_nothing(deployment: Deployment) -> None:
    deployment.tell("warm", coverage={IMAGE: 1.0})
    deployment.tell("cold", coverage={IMAGE: 0.0})
    deployment.clock.now += TTL
    assert set(weigh(deployment, *named("warm", "cold")).values()) == {0.0}


@pytest.mark.parametrize("state", [{"is_up": False}, {"is_draining": True}])
def test_what_a_host_holds_is_worth_nothing_while_it_drains_or_is_down(
    deployment: Deployment, state: dict[str, bool]
) -> None:
    deployment.tell("leaving", coverage={IMAGE: 1.0}, **state)
    deployment.tell("cold", coverage={IMAGE: 0.1})
    assert list(weigh(deployment, *named("leaving", "cold"))) == ["cold", "leaving"]


@pytest.mark.parametrize(
    "spec",
    [
        {"is_bfv": True},
        {"image": None},
        {"image": None, "is_bfv": True},
    ],
)
def test_instance_that_boots_from_no_image_weighs_nothing(
    deployment: Deployment, spec: dict[str, Any]
) -> None:
    deployment.tell("warm", coverage={IMAGE: 1.0})
    deployment.tell("cold", coverage={IMAGE: 0.0})
    found = weigh(deployment, *named("warm", "cold"), spec=request_spec(**spec))
    assert set(found.values()) == {0.0}


def test_names_agree_but_for_case_or_by_the_node(deployment: Deployment) -> None:
    deployment.tell("warm.example.org", coverage={IMAGE: 1.0})
    deployment.tell("cold", coverage={IMAGE: 0.0})
    found = weigh(deployment, nova_host("Cold"), nova_host("warm", "WARM.example.org"))
    assert found == pytest.approx({"warm": 0.5, "Cold": -0.5})


def test_aggregate_has_multipliers_of_its_own(deployment: Deployment) -> None:
    deployment.tell("h1", coverage={IMAGE: 1.0})
    deployment.tell("h2", coverage={IMAGE: 1.0})
    deployment.tell("h3", coverage={IMAGE: 0.0})
    hosts = [
        nova_host("h1", boot_coverage_weight_multiplier="3.0"),
        nova_host("h2", boot_coverage_weight_multiplier="nan"),
        nova_host("h3", boot_coverage_weight_multiplier="lots"),
    ]
    found = weigh(deployment, *hosts)
    assert found == pytest.approx({"h1": 1.0, "h2": 1 / 3, "h3": -2 / 3})


def test_weight_adds_to_those_of_nova(deployment: Deployment) -> None:
    """A warm host with a quarter of the memory free still wins against a cold, empty one."""
    small, large = nova_host("small"), nova_host("large")
    small.free_ram_mb, large.free_ram_mb = 1024, 4096
    deployment.tell("small", coverage={IMAGE: 1.0})
    deployment.tell("large", coverage={IMAGE: 0.0})
    weighed = weights.HostWeightHandler().get_weighed_objects(
        [RAMWeigher(), BootCoverageWeigher(deployment.hosts)], [small, large], request_spec()
    )
    assert {each.obj.host: each.weight for each in weighed} == pytest.approx(
        {"small": 0.25 + 0.5, "large": 1.0 - 0.5}
    )


def test_fault_weighs_nothing_and_does_not_reach_nova(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.tell("warm", coverage={IMAGE: 1.0})
    monkeypatch.setattr(deployment.table, "get", lambda host, now: 1 / 0)
    assert set(weigh(deployment, *named("warm", "cold")).values()) == {0.0}
    weigher = BootCoverageWeigher(deployment.hosts)
    assert weigher.weigh_objects([weights.WeighedHost(nova_host("h1"), 0.0)], object()) == [0.0]


def test_single_host_weighs_nothing(deployment: Deployment) -> None:
    deployment.tell("warm", coverage={IMAGE: 1.0})
    weigher = BootCoverageWeigher(deployment.hosts)
    assert weigher._weigh_object(nova_host("warm"), request_spec()) == 0.0
