"""Statistics that the back-end reports to Cinder, and its start."""

import pathlib
from typing import Any
from unittest import mock

import pytest
from cinder import exception as cinder_exception
from cinder.volume import configuration as cinder_configuration
from cinder.volume import driver as cinder_driver
from oslo_config import cfg
from oslo_serialization import jsonutils

from acstor import exception
from acstor.drivers.cinder import back_end as back_ends
from acstor.drivers.cinder.back_end import BackEnd, OriginSettings
from acstor.drivers.cinder.driver import AcstorVolumeDriver
from acstor.drivers.cinder.options import OPTIONS
from acstor.origin.opening import open_origin
from acstor.repository.repository import Repository
from testbed.doubles.volume_hosts import MemoryVolumeHosts
from testbed.fixtures.cinder_driver import DriverHarness

REQUIRED = {
    "volume_backend_name",
    "vendor_name",
    "driver_version",
    "storage_protocol",
    "total_capacity_gb",
    "free_capacity_gb",
}
"""Statistics that Cinder's interface (get_volume_stats) demands."""


def test_stats_have_what_cinder_demands_and_can_be_sent(harness: DriverHarness) -> None:
    stats = harness.driver.get_volume_stats(refresh=True)
    assert stats.keys() >= REQUIRED
    assert jsonutils.loads(jsonutils.dumps(stats)) == stats
    assert stats["backend_state"] == "up"
    assert stats["storage_protocol"] == "acstor"
    assert stats["thin_provisioning_support"] is True
    assert stats["consistent_group_snapshot_enabled"] is True
    assert stats["online_extend_support"] is True
    assert stats["QoS_support"] is True
    assert stats["multiattach"] is False
    assert stats["location_info"] == f"acstor:{harness.back_end.repository.format.id}"
    assert harness.driver.get_volume_stats() is stats


def test_multiattach_is_told_only_where_the_operator_allows_it(harness: DriverHarness) -> None:
    cfg.CONF.set_override("acstor_multiattach_on_one_host", True, group="acstor")
    try:
        assert harness.driver.get_volume_stats(refresh=True)["multiattach"] is True
    finally:
        cfg.CONF.clear_override("acstor_multiattach_on_one_host", group="acstor")


def test_stats_tell_registered_images_up_to_a_bound(harness: DriverHarness) -> None:
    images = sorted(harness.image(bytes([number]) * 4096) for number in range(3))
    stats = harness.driver.get_volume_stats(refresh=True)
    assert stats["acstor_images"] == images
    assert stats["acstor_images_complete"] is True
    cfg.CONF.set_override("acstor_listed_images_max", 2, group="acstor")
    try:
        stats = harness.driver.get_volume_stats(refresh=True)
    finally:
        cfg.CONF.clear_override("acstor_listed_images_max", group="acstor")
    assert len(stats["acstor_images"]) == 2
    assert stats["acstor_images_complete"] is False


def test_stats_with_origin_down_are_down_and_no_error(harness: DriverHarness) -> None:
    down = exception.UnavailableError("the origin is away", hint="mount it")
    with mock.patch.object(harness.back_end.repository.origin, "list_refs", side_effect=down):
        stats = harness.driver.get_volume_stats(refresh=True)
    assert stats["backend_state"] == "down"
    assert stats["total_capacity_gb"] == "unknown"


def test_stats_tell_the_room_of_a_directory(harness: DriverHarness, tmp_path: pathlib.Path) -> None:
    harness.back_end.settings = OriginSettings(f"posix://{tmp_path}", 1.0)
    stats = harness.driver.get_volume_stats(refresh=True)
    assert 0 < stats["free_capacity_gb"] <= stats["total_capacity_gb"]
    harness.back_end.settings = OriginSettings(f"posix://{tmp_path}/absent", 1.0)
    assert harness.driver.get_volume_stats(refresh=True)["backend_state"] == "down"


def test_capabilities_describe_the_extra_specs(harness: DriverHarness) -> None:
    harness.driver.init_capabilities()
    properties = harness.driver.capabilities["properties"]
    assert harness.driver.capabilities["vendor_prefix"] == "acstor"
    assert {name for name in properties if name.startswith("acstor:")} == {
        "acstor:durability",
        "acstor:period",
        "acstor:flush",
        "acstor:regions",
        "acstor:io_timeout",
        "acstor:iops",
        "acstor:bytes_per_s",
    }
    assert properties["acstor:durability"]["enum"] == ["write-through", "write-back", "none"]
    assert properties["acstor:durability"]["default"] == "write-through"


def _driver(**settings: Any) -> AcstorVolumeDriver:
    group = "back_end_of_a_test"
    made = AcstorVolumeDriver(
        configuration=cinder_configuration.Configuration(
            cinder_driver.volume_opts, config_group=group
        ),
        host="c1@acstor",
        cluster_name="a-cluster@acstor",
    )
    for option in OPTIONS:
        cfg.CONF.clear_override(option.dest, group=group)
    for name, value in settings.items():
        cfg.CONF.set_override(name, value, group=group)
    return made


def test_set_up_opens_the_repository_of_the_back_end(tmp_path: pathlib.Path) -> None:
    url = f"posix://{tmp_path}"
    Repository.init(open_origin(url, 1.0))
    driver = _driver(acstor_origin_url=url, acstor_origin_timeout=60.0)
    driver.do_setup(None)
    driver.check_for_setup_error()
    assert driver.back_end.settings == OriginSettings(url, 60.0)


def test_set_up_reads_the_origin_from_acstor_conf(tmp_path: pathlib.Path) -> None:
    url = f"posix://{tmp_path}"
    Repository.init(open_origin(url, 1.0))
    path = tmp_path / "acstor.conf"
    path.write_text(f"[origin]\nurl = {url}\ntimeout = 70\n")
    driver = _driver(acstor_conf=str(path))
    driver.do_setup(None)
    assert driver.back_end.settings == OriginSettings(url, 70.0)


def test_set_up_without_origin_says_what_to_set() -> None:
    with pytest.raises(cinder_exception.VolumeDriverException, match="set acstor_origin_url"):
        _driver(acstor_conf="/absent/acstor.conf").do_setup(None)


def test_set_up_without_repository_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        cinder_exception.VolumeBackendAPIException, match="the origin holds no repository"
    ):
        _driver(acstor_origin_url=f"posix://{tmp_path}").do_setup(None)


def test_set_up_without_directory_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with pytest.raises(cinder_exception.VolumeDriverException, match="mount or create"):
        _driver(acstor_origin_url=f"posix://{tmp_path}/absent").do_setup(None)


def test_driver_that_is_not_set_up_says_so() -> None:
    driver = _driver()
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="not set up"):
        driver.check_for_setup_error()
    assert driver.get_volume_stats(refresh=True)["backend_state"] == "down"


def test_origin_that_goes_away_is_told_with_what_to_do(harness: DriverHarness) -> None:
    down = exception.UnavailableError("the origin is away", hint="mount it")
    with (
        mock.patch.object(harness.back_end.repository.origin, "swap_ref", side_effect=down),
        pytest.raises(
            cinder_exception.VolumeBackendAPIException,
            match=r"creating volume .*: the origin is away; mount it",
        ),
    ):
        harness.driver.create_volume(harness.volume())


def test_full_origin_is_told_with_what_to_do(harness: DriverHarness) -> None:
    full = exception.ExhaustedError("the origin is full", hint="make room")
    with (
        mock.patch.object(harness.back_end.repository.origin, "swap_ref", side_effect=full),
        pytest.raises(cinder_exception.VolumeBackendAPIException, match="full; make room"),
    ):
        harness.driver.create_volume(harness.volume())


def test_transport_that_cannot_be_had_tells_no_password(harness: DriverHarness) -> None:
    driver = _driver(acstor_transport_url="nonsense://user:secret@host/")
    hosts = back_ends._agent_hosts(driver.configuration, cfg.CONF)
    with pytest.raises(exception.ConfigurationError) as caught:
        hosts.call("h1", "volume_status", volume="x")
    assert "secret" not in str(caught.value)


def test_two_services_of_a_cluster_share_everything(
    harness: DriverHarness, hosts: MemoryVolumeHosts
) -> None:
    other = DriverHarness(
        BackEnd(harness.back_end.settings, harness.back_end.repository.origin, hosts),
        hosts,
        harness.path,
    )
    other.attachments = harness.attachments
    volume = harness.created()
    other.driver.extend_volume(volume, 3)
    snapshot = other.snapshot(volume)
    other.driver.create_snapshot(snapshot)
    harness.driver.delete_snapshot(snapshot)
    other.driver.delete_volume(volume)
    assert harness.volumes.find(volume.id) is None


def test_locks_of_a_deleted_volume_are_removed(harness: DriverHarness) -> None:
    volume = harness.created()
    locks = pathlib.Path(cfg.CONF.coordination.backend_url.removeprefix("file://"))
    harness.driver.delete_volume(volume)
    assert list(locks.rglob(f"*acstor-{volume.id}*"))
    AcstorVolumeDriver.clean_volume_file_locks(volume.id)
    assert not list(locks.rglob(f"*acstor-{volume.id}*"))


def test_update_of_provider_info_changes_nothing(harness: DriverHarness) -> None:
    assert harness.driver.update_provider_info([harness.volume()], []) == (None, None)
