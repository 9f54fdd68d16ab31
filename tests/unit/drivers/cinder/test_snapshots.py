"""Snapshots: taking them, volumes from them, going back to them."""

import uuid

import pytest
from cinder import exception as cinder_exception

from acstor.repository import layout
from testbed.fixtures.cinder_party import GIB, H1, Party


def test_snapshot_of_available_volume_is_a_record_only(party: Party) -> None:
    volume = party.created(size=2)
    snapshot = party.snapshot(volume)
    before = set(party.back_end.repository.origin.list(""))
    party.driver.create_snapshot(snapshot)
    record = party.volumes.get_snapshot(snapshot.id).record
    assert record.volume == volume.id
    assert record.size_bytes == 2 * GIB
    assert set(party.back_end.repository.origin.list("")) == before
    assert party.hosts.calls == []


def test_snapshot_of_volume_in_use_has_what_its_guest_wrote(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.write(volume.id, 3)
    snapshot = party.snapshot(volume)
    party.driver.create_snapshot(snapshot)
    party.hosts.write(volume.id, 4)
    party.hosts.call("h1", "volume_push", volume=volume.id)
    assert sum(map(len, party.volumes.get_snapshot(snapshot.id).record.logs)) == 3


def test_snapshot_with_agent_down_fails_and_leaves_nothing(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.down.add("h1")
    snapshot = party.snapshot(volume)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not push"):
        party.driver.create_snapshot(snapshot)
    assert party.volumes.find_snapshot(snapshot.id) is None


def test_volume_from_snapshot_is_as_large_as_asked_for(party: Party) -> None:
    volume = party.created()
    snapshot = party.snapshot(volume)
    party.driver.create_snapshot(snapshot)
    made = party.volume(size=4)
    update = party.driver.create_volume_from_snapshot(made, snapshot)
    assert update == {"shared_targets": False}  # for groups that are made volume by volume
    assert party.record(made).size_bytes == 4 * GIB


def test_volume_from_snapshot_outlives_snapshot_and_source(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.write(volume.id, 2)
    snapshot = party.snapshot(volume)
    party.driver.create_snapshot(snapshot)
    party.hosts.release(volume.id)
    party.detach(volume, H1)
    made = party.volume()
    party.driver.create_volume_from_snapshot(made, snapshot)
    party.driver.delete_snapshot(snapshot)
    party.driver.delete_volume(volume)
    origin = party.back_end.repository.origin
    for one in party.record(made).logs:
        for sequence in range(one.first, one.last + 1):
            assert origin.exists(layout.log_key(one.volume, one.epoch, sequence))


def test_volume_from_snapshot_that_is_gone_says_so(party: Party) -> None:
    snapshot = party.snapshot(party.created())
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not exist"):
        party.driver.create_volume_from_snapshot(party.volume(), snapshot)


def test_delete_snapshot_twice_is_no_error(party: Party) -> None:
    snapshot = party.snapshot(party.created())
    party.driver.create_snapshot(snapshot)
    party.driver.delete_snapshot(snapshot)
    party.driver.delete_snapshot(snapshot)
    assert party.volumes.find_snapshot(snapshot.id) is None


def test_revert_brings_the_content_back_and_keeps_the_size(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.write(volume.id, 2)
    snapshot = party.snapshot(volume)
    party.driver.create_snapshot(snapshot)
    party.hosts.write(volume.id, 5)
    party.hosts.release(volume.id)
    party.detach(volume, H1)
    party.driver.extend_volume(volume, 3)
    assert party.driver.snapshot_revert_use_temp_snapshot() is False
    party.driver.revert_to_snapshot(party.context, volume, snapshot)
    record = party.record(volume)
    assert sum(map(len, record.logs)) == 2
    assert record.size_bytes == 3 * GIB


def test_revert_of_attached_volume_is_refused(party: Party) -> None:
    volume = party.created()
    snapshot = party.snapshot(volume)
    party.driver.create_snapshot(snapshot)
    party.attach(volume, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="detach the volume"):
        party.driver.revert_to_snapshot(party.context, volume, snapshot)


def test_revert_to_snapshot_of_another_volume_is_refused(party: Party) -> None:
    snapshot = party.snapshot(party.created())
    party.driver.create_snapshot(snapshot)
    with pytest.raises(cinder_exception.VolumeDriverException, match="is of volume"):
        party.driver.revert_to_snapshot(party.context, party.created(), snapshot)


def test_snapshot_of_volume_with_another_name_is_of_its_record(party: Party) -> None:
    volume = party.created(_name_id=str(uuid.uuid4()))
    snapshot = party.snapshot(volume)
    party.driver.create_snapshot(snapshot)
    assert party.volumes.get_snapshot(snapshot.id).record.volume == volume.name_id
