"""Changing types, and moving between back-ends: nothing is copied."""

import uuid
from typing import Any

import pytest
from cinder import exception as cinder_exception

from acstor import exception
from acstor.repository.volumes.durability import DurabilityClass
from testbed.fixtures.cinder_driver import H1, DriverHarness

HOST = {"host": "c1@acstor"}


def _retype(harness: DriverHarness, volume: Any, specs: dict[str, str], **more: Any) -> Any:
    new_type = harness.volume_type(specs, **more)
    return harness.driver.retype(harness.context, volume, new_type, {"extra_specs": {}}, HOST)


def test_durability_changes_in_place(harness: DriverHarness) -> None:
    volume = harness.created()
    assert _retype(harness, volume, {"acstor:durability": "write-back"}) == (True, None)
    assert harness.record(volume).durability.default is DurabilityClass.WRITE_BACK
    assert harness.hosts.calls == []


def test_durability_of_volume_in_use_changes_on_its_host(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    specs = {"acstor:durability": "write-back", "acstor:period": "7", "acstor:iops": "100"}
    assert _retype(harness, volume, specs) == (True, None)
    opened = harness.hosts.open_volumes[volume.id]
    assert opened.durability == harness.record(volume).durability.to_fields()
    assert opened.limits == (100, 0)


def test_limits_come_and_go_with_the_type(harness: DriverHarness) -> None:
    volume = harness.created(volume_type=harness.volume_type({"acstor:iops": "100"}))
    qos = {"consumer": "both", "specs": {"bytes_per_s": "5000", "total_iops_sec": "9"}}
    _retype(harness, volume, {}, qos=qos)
    metadata = harness.record(volume).metadata
    assert "iops" not in metadata
    assert metadata["bytes_per_s"] == "5000"
    assert metadata["cinder_volume"] == volume.id


def test_repeated_retype_tells_an_owner_that_was_not_told(harness: DriverHarness) -> None:
    """The record says so since the attempt that failed; what the owner does, it does not say."""
    volume = harness.created(volume_type=harness.volume_type({"acstor:durability": "write-back"}))
    harness.in_use(volume)
    specs = {"acstor:durability": "write-through", "acstor:iops": "100"}
    failing = ["volume_set_durability", "volume_set_limits"]

    def fail_each_once(method: str, volume: str) -> None:
        if method in failing:
            failing.remove(method)
            raise exception.UnavailableError("the partition table is being written: try again")

    harness.hosts.on_call = fail_each_once
    for _ in range(2):
        with pytest.raises(cinder_exception.VolumeBackendAPIException, match="try again"):
            _retype(harness, volume, specs)
    assert failing == []
    assert harness.record(volume).durability.default is DurabilityClass.WRITE_THROUGH
    assert _retype(harness, volume, specs) == (True, None)
    opened = harness.hosts.open_volumes[volume.id]
    assert opened.durability == harness.record(volume).durability.to_fields()
    assert opened.limits == (100, 0)


def test_type_with_bad_extra_spec_changes_nothing(harness: DriverHarness) -> None:
    volume = harness.created()
    with pytest.raises(cinder_exception.VolumeDriverException, match="acstor:iops"):
        _retype(harness, volume, {"acstor:durability": "none", "acstor:iops": "-1"})
    assert harness.record(volume).durability.default is DurabilityClass.WRITE_THROUGH


def test_host_down_changes_nothing(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.down.add("h1")
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="h1"):
        _retype(harness, volume, {"acstor:durability": "write-back"})
    assert harness.record(volume).durability.default is DurabilityClass.WRITE_THROUGH


def test_other_encryption_is_left_to_cinder(harness: DriverHarness) -> None:
    volume = harness.created()
    diff = {"encryption": {"provider": (None, "luks")}}
    new_type = harness.volume_type()
    assert harness.driver.retype(harness.context, volume, new_type, diff, HOST) == (False, None)


def test_move_within_the_repository_copies_nothing(harness: DriverHarness) -> None:
    volume = harness.created()
    before = harness.record(volume)
    host = {
        "host": "c2@other#pool",
        "capabilities": {"location_info": harness.back_end.location},
    }
    assert harness.driver.migrate_volume(harness.context, volume, host) == (True, None)
    assert harness.record(volume) == before


@pytest.mark.parametrize(
    "capabilities", [None, {}, {"location_info": None}, {"location_info": "acstor:other"}]
)
def test_move_to_another_repository_is_left_to_cinder(
    harness: DriverHarness, capabilities: dict[str, Any] | None
) -> None:
    host = {"host": "c2@other#pool", "capabilities": capabilities}
    volume = harness.created()
    assert harness.driver.migrate_volume(harness.context, volume, host) == (False, None)


def test_copied_volume_goes_on_under_the_name_of_the_copy(harness: DriverHarness) -> None:
    volume, copy = harness.volume(), harness.created()
    update = harness.driver.update_migrated_volume(harness.context, volume, copy, "available")
    volume._name_id = update["_name_id"]
    assert volume.name_id == copy.id
    harness.attach(volume, H1)
    assert harness.record(copy).hosts == ("h1",)
    renamed = harness.created(_name_id=str(uuid.uuid4()))
    update = harness.driver.update_migrated_volume(harness.context, volume, renamed, "in-use")
    assert update["_name_id"] == renamed.name_id
