"""Changing types, and moving between back-ends: nothing is copied."""

import uuid
from typing import Any

import pytest
from cinder import exception as cinder_exception

from acstor import exception
from acstor.repository.volumes.durability import DurabilityClass
from testbed.fixtures.cinder_party import H1, Party

HOST = {"host": "c1@acstor"}


def _retype(party: Party, volume: Any, specs: dict[str, str], **more: Any) -> Any:
    new_type = party.volume_type(specs, **more)
    return party.driver.retype(party.context, volume, new_type, {"extra_specs": {}}, HOST)


def test_durability_changes_in_place(party: Party) -> None:
    volume = party.created()
    assert _retype(party, volume, {"acstor:durability": "write-back"}) == (True, None)
    assert party.record(volume).durability.default is DurabilityClass.WRITE_BACK
    assert party.hosts.calls == []


def test_durability_of_volume_in_use_changes_on_its_host(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    specs = {"acstor:durability": "write-back", "acstor:period": "7", "acstor:iops": "100"}
    assert _retype(party, volume, specs) == (True, None)
    opened = party.hosts.open_volumes[volume.id]
    assert opened.durability == party.record(volume).durability.to_fields()
    assert opened.limits == (100, 0)


def test_limits_come_and_go_with_the_type(party: Party) -> None:
    volume = party.created(volume_type=party.volume_type({"acstor:iops": "100"}))
    qos = {"consumer": "both", "specs": {"bytes_per_s": "5000", "total_iops_sec": "9"}}
    _retype(party, volume, {}, qos=qos)
    metadata = party.record(volume).metadata
    assert "iops" not in metadata
    assert metadata["bytes_per_s"] == "5000"
    assert metadata["cinder_volume"] == volume.id


def test_repeated_retype_tells_an_owner_that_was_not_told(party: Party) -> None:
    """The record says so since the attempt that failed; what the owner does, it does not say."""
    volume = party.created(volume_type=party.volume_type({"acstor:durability": "write-back"}))
    party.in_use(volume)
    specs = {"acstor:durability": "write-through", "acstor:iops": "100"}
    failing = ["volume_set_durability", "volume_set_limits"]

    def fail_each_once(method: str, volume: str) -> None:
        if method in failing:
            failing.remove(method)
            raise exception.UnavailableError("the partition table is being written: try again")

    party.hosts.on_call = fail_each_once
    for _ in range(2):
        with pytest.raises(cinder_exception.VolumeBackendAPIException, match="try again"):
            _retype(party, volume, specs)
    assert failing == []
    assert party.record(volume).durability.default is DurabilityClass.WRITE_THROUGH
    assert _retype(party, volume, specs) == (True, None)
    opened = party.hosts.open_volumes[volume.id]
    assert opened.durability == party.record(volume).durability.to_fields()
    assert opened.limits == (100, 0)


def test_type_with_bad_extra_spec_changes_nothing(party: Party) -> None:
    volume = party.created()
    with pytest.raises(cinder_exception.VolumeDriverException, match="acstor:iops"):
        _retype(party, volume, {"acstor:durability": "none", "acstor:iops": "-1"})
    assert party.record(volume).durability.default is DurabilityClass.WRITE_THROUGH


def test_host_down_changes_nothing(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.down.add("h1")
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="h1"):
        _retype(party, volume, {"acstor:durability": "write-back"})
    assert party.record(volume).durability.default is DurabilityClass.WRITE_THROUGH


def test_other_encryption_is_left_to_cinder(party: Party) -> None:
    volume = party.created()
    diff = {"encryption": {"provider": (None, "luks")}}
    new_type = party.volume_type()
    assert party.driver.retype(party.context, volume, new_type, diff, HOST) == (False, None)


def test_move_within_the_repository_copies_nothing(party: Party) -> None:
    volume = party.created()
    before = party.record(volume)
    host = {
        "host": "c2@other#pool",
        "capabilities": {"location_info": party.back_end.location},
    }
    assert party.driver.migrate_volume(party.context, volume, host) == (True, None)
    assert party.record(volume) == before


@pytest.mark.parametrize(
    "capabilities", [None, {}, {"location_info": None}, {"location_info": "acstor:other"}]
)
def test_move_to_another_repository_is_left_to_cinder(
    party: Party, capabilities: dict[str, Any] | None
) -> None:
    host = {"host": "c2@other#pool", "capabilities": capabilities}
    volume = party.created()
    assert party.driver.migrate_volume(party.context, volume, host) == (False, None)


def test_copied_volume_goes_on_under_the_name_of_the_copy(party: Party) -> None:
    volume, copy = party.volume(), party.created()
    update = party.driver.update_migrated_volume(party.context, volume, copy, "available")
    volume._name_id = update["_name_id"]
    assert volume.name_id == copy.id
    party.attach(volume, H1)
    assert party.record(copy).hosts == ("h1",)
    renamed = party.created(_name_id=str(uuid.uuid4()))
    update = party.driver.update_migrated_volume(party.context, volume, renamed, "in-use")
    assert update["_name_id"] == renamed.name_id
