"""The filter in Nova's own filter handler."""

from typing import Any

import pytest
from nova.scheduler import filters
from oslo_config import cfg

from acstor.scheduler.nova.filter import DataPlaneFilter
from tests.unit.scheduler.conftest import (
    IMAGE,
    OTHER_IMAGE,
    TTL,
    Deployment,
    nova_host,
    request_spec,
)

REQUIRED = {"acstor:required": "true"}


def passing(deployment: Deployment, *names: str, **spec: Any) -> list[str]:
    found = filters.HostFilterHandler().get_filtered_objects(
        [DataPlaneFilter(deployment.hosts)],
        [nova_host(name) for name in names],
        request_spec(**spec),
    )
    return [host.host for host in found]


@pytest.fixture
def mixed(deployment: Deployment) -> Deployment:
    """One host of each kind; nothing is known of ``silent``."""
    deployment.tell("serving")
    deployment.tell("draining", is_draining=True)
    deployment.tell("down", is_up=False)
    return deployment


ALL = ("draining", "serving", "down", "silent")


def test_registered_image_keeps_away_from_hosts_known_not_to_serve(mixed: Deployment) -> None:
    assert passing(mixed, *ALL) == ["serving", "silent"]


def test_image_that_is_not_registered_goes_anywhere(mixed: Deployment) -> None:
    assert passing(mixed, *ALL, image=OTHER_IMAGE) == list(ALL)


def test_registered_image_goes_to_hosts_that_do_not_serve_rather_than_nowhere(
    mixed: Deployment,
) -> None:
    assert passing(mixed, "draining", "down") == ["draining", "down"]


@pytest.mark.parametrize("spec", [{"is_bfv": True}, {"image": None}])
def test_instance_that_boots_from_no_image_goes_anywhere(
    mixed: Deployment, spec: dict[str, Any]
) -> None:
    assert passing(mixed, *ALL, **spec) == list(ALL)


@pytest.mark.parametrize("spec", [{}, {"image": OTHER_IMAGE}, {"is_bfv": True}])
def test_flavor_that_requires_a_data_plane_goes_only_where_one_serves(
    mixed: Deployment, spec: dict[str, Any]
) -> None:
    assert passing(mixed, *ALL, extra_specs=REQUIRED, **spec) == ["serving"]
    assert passing(mixed, "draining", "down", "silent", extra_specs=REQUIRED, **spec) == []


def test_flavor_that_does_without_goes_anywhere(mixed: Deployment) -> None:
    assert passing(mixed, *ALL, extra_specs={"acstor:required": "false"}) == list(ALL)


def test_extra_spec_that_is_neither_true_nor_false_says_nothing(mixed: Deployment) -> None:
    assert passing(mixed, *ALL, extra_specs={"acstor:required": "maybe"}) == ["serving", "silent"]


def test_policy_require_is_for_every_image(mixed: Deployment, nova_conf: cfg.ConfigOpts) -> None:
    nova_conf.set_override("data_plane_policy", "require", "acstor")
    assert passing(mixed, *ALL, image=OTHER_IMAGE) == ["serving"]
    assert passing(mixed, *ALL, is_bfv=True) == list(ALL)
    assert passing(mixed, *ALL, extra_specs={"acstor:required": "no"}) == list(ALL)


def test_policy_ignore_lets_all_pass_but_for_flavors_that_require(
    mixed: Deployment, nova_conf: cfg.ConfigOpts
) -> None:
    nova_conf.set_override("data_plane_policy", "ignore", "acstor")
    assert passing(mixed, *ALL) == list(ALL)
    assert passing(mixed, *ALL, extra_specs=REQUIRED) == ["serving"]


@pytest.mark.parametrize("extra_specs", [{}, REQUIRED])
def test_scheduler_that_knows_of_no_host_lets_all_pass(
    mixed: Deployment, extra_specs: dict[str, str]
) -> None:
    mixed.clock.now += TTL
    assert passing(mixed, *ALL, extra_specs=extra_specs) == list(ALL)


def test_state_too_old_of_one_host_is_as_none(mixed: Deployment) -> None:
    mixed.clock.now += TTL - 1
    mixed.tell("serving")
    mixed.clock.now += 1
    assert passing(mixed, *ALL) == list(ALL)
    assert passing(mixed, *ALL, extra_specs=REQUIRED) == ["serving"]


def test_rebuild_stays_where_it_is(mixed: Deployment) -> None:
    hints = {"_nova_check_type": ["rebuild"]}
    assert passing(mixed, "down", extra_specs=REQUIRED, hints=hints) == ["down"]


def test_image_property_never_reaches_the_scheduler(mixed: Deployment) -> None:
    """The reason why flavors decide: Nova drops properties that it does not know."""
    spec = request_spec(properties={"acstor_required": "true", "os_distro": "debian"})
    assert spec.image.properties.os_distro == "debian"
    assert "acstor_required" not in spec.image.properties.to_dict()


def test_one_host_passes_by_itself_as_in_a_list(mixed: Deployment) -> None:
    each = DataPlaneFilter(mixed.hosts)
    required = request_spec(extra_specs=REQUIRED)
    assert each.host_passes(nova_host("serving"), required)
    assert not each.host_passes(nova_host("down"), required)


def test_fault_lets_all_pass_and_does_not_reach_nova(
    mixed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed.table, "get", lambda host, now: 1 / 0)
    assert passing(mixed, *ALL) == list(ALL)
    assert IMAGE  # registered, so the table was asked
