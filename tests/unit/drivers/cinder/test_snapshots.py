"""Snapshots: taking them, volumes from them, going back to them."""

import uuid

import pytest
from cinder import exception as cinder_exception

from acstor.repository import layout
from testbed.fixtures.cinder_driver import GIB, H1, DriverHarness


def test_snapshot_of_available_volume_is_a_record_only(harness: DriverHarness) -> None:
    volume = harness.created(size=2)
    snapshot = harness.snapshot(volume)
    before = set(harness.back_end.repository.origin.list(""))
    harness.driver.create_snapshot(snapshot)
    record = harness.volumes.get_snapshot(snapshot.id).record
    assert record.volume == volume.id
    assert record.size_bytes == 2 * GIB
    assert set(harness.back_end.repository.origin.list("")) == before
    assert harness.hosts.calls == []


def test_snapshot_of_volume_in_use_has_what_its_guest_wrote(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.write(volume.id, 3)
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    harness.hosts.write(volume.id, 4)
    harness.hosts.call("h1", "volume_push", volume=volume.id)
    assert sum(map(len, harness.volumes.get_snapshot(snapshot.id).record.logs)) == 3


def test_snapshot_with_agent_down_fails_and_leaves_nothing(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.down.add("h1")
    snapshot = harness.snapshot(volume)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not push"):
        harness.driver.create_snapshot(snapshot)
    assert harness.volumes.find_snapshot(snapshot.id) is None


def test_volume_from_snapshot_is_as_large_as_asked_for(harness: DriverHarness) -> None:
    volume = harness.created()
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    made = harness.volume(size=4)
    update = harness.driver.create_volume_from_snapshot(made, snapshot)
    assert update == {"shared_targets": False}  # for groups that are made volume by volume
    assert harness.record(made).size_bytes == 4 * GIB


def test_volume_from_snapshot_outlives_snapshot_and_source(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.write(volume.id, 2)
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    harness.hosts.release(volume.id)
    harness.detach(volume, H1)
    made = harness.volume()
    harness.driver.create_volume_from_snapshot(made, snapshot)
    harness.driver.delete_snapshot(snapshot)
    harness.driver.delete_volume(volume)
    origin = harness.back_end.repository.origin
    for one in harness.record(made).logs:
        for sequence in range(one.first, one.last + 1):
            assert origin.exists(layout.log_key(one.volume, one.epoch, sequence))


def test_volume_from_snapshot_that_is_gone_says_so(harness: DriverHarness) -> None:
    snapshot = harness.snapshot(harness.created())
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not exist"):
        harness.driver.create_volume_from_snapshot(harness.volume(), snapshot)


def test_delete_snapshot_twice_is_no_error(harness: DriverHarness) -> None:
    snapshot = harness.snapshot(harness.created())
    harness.driver.create_snapshot(snapshot)
    harness.driver.delete_snapshot(snapshot)
    harness.driver.delete_snapshot(snapshot)
    assert harness.volumes.find_snapshot(snapshot.id) is None


def test_revert_brings_the_content_back_and_keeps_the_size(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.write(volume.id, 2)
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    harness.hosts.write(volume.id, 5)
    harness.hosts.release(volume.id)
    harness.detach(volume, H1)
    harness.driver.extend_volume(volume, 3)
    assert harness.driver.snapshot_revert_use_temp_snapshot() is False
    harness.driver.revert_to_snapshot(harness.context, volume, snapshot)
    record = harness.record(volume)
    assert sum(map(len, record.logs)) == 2
    assert record.size_bytes == 3 * GIB


def test_revert_of_attached_volume_is_refused(harness: DriverHarness) -> None:
    volume = harness.created()
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    harness.attach(volume, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="detach the volume"):
        harness.driver.revert_to_snapshot(harness.context, volume, snapshot)


def test_revert_to_snapshot_of_another_volume_is_refused(harness: DriverHarness) -> None:
    snapshot = harness.snapshot(harness.created())
    harness.driver.create_snapshot(snapshot)
    with pytest.raises(cinder_exception.VolumeDriverException, match="is of volume"):
        harness.driver.revert_to_snapshot(harness.context, harness.created(), snapshot)


def test_snapshot_of_volume_with_another_name_is_of_its_record(harness: DriverHarness) -> None:
    volume = harness.created(_name_id=str(uuid.uuid4()))
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    assert harness.volumes.get_snapshot(snapshot.id).record.volume == volume.name_id
