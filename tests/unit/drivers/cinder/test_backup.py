"""Backups: of volumes in use from a clone, of others directly; both through the connector."""

from typing import Any
from unittest import mock

from cinder import objects
from cinder.volume import driver as cinder_driver

from testbed.fixtures.cinder_driver import DriverHarness


def _backup(volume: Any, snapshot: Any = None) -> Any:
    backup = mock.Mock(spec_set=["volume_id", "snapshot_id", "temp_volume_id", "service", "save"])
    backup.volume_id = volume.id
    backup.snapshot_id = snapshot.id if snapshot else None
    backup.service = "cinder.backup.drivers.posix"
    return backup


def _device(harness: DriverHarness, backup: Any, volume: Any, snapshot: Any = None) -> Any:
    """Return what the driver has backed up, with Cinder's database in memory."""
    made = harness.volume()

    def temporary(self: Any, context: Any, volume: Any, volume_options: Any = None) -> Any:
        made.size = volume.size
        return made

    with (
        mock.patch.object(objects.Volume, "get_by_id", return_value=volume),
        mock.patch.object(objects.Snapshot, "get_by_id", return_value=snapshot),
        mock.patch.object(cinder_driver.BaseVD, "_create_temp_volume", temporary),
        mock.patch.object(objects.Volume, "save"),
    ):
        return harness.driver.get_backup_device(harness.context, backup)


def test_available_volume_is_backed_up_itself(harness: DriverHarness) -> None:
    volume = harness.created(previous_status="available")
    device, is_snapshot = _device(harness, _backup(volume), volume)
    assert device is volume
    assert is_snapshot is False


def test_volume_in_use_is_backed_up_from_a_clone(harness: DriverHarness) -> None:
    volume = harness.created(previous_status="in-use")
    harness.in_use(volume)
    harness.hosts.write(volume.id, 3)
    backup = _backup(volume)
    device, is_snapshot = _device(harness, backup, volume)
    assert is_snapshot is False
    assert device.id != volume.id
    assert backup.temp_volume_id == device.id
    assert sum(map(len, harness.record(device).logs)) == 3
    assert harness.record(volume).owner == "h1"


def test_snapshot_is_backed_up_from_a_volume_made_of_it(harness: DriverHarness) -> None:
    volume = harness.created(previous_status="in-use")
    harness.in_use(volume)
    harness.hosts.write(volume.id, 2)
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    harness.hosts.write(volume.id, 2)
    device, is_snapshot = _device(harness, _backup(volume, snapshot), volume, snapshot)
    assert is_snapshot is False
    assert sum(map(len, harness.record(device).logs)) == 2


def test_clone_for_a_backup_is_attached_where_cinder_backup_runs(harness: DriverHarness) -> None:
    volume = harness.created(previous_status="in-use")
    harness.in_use(volume)
    device, _ = _device(harness, _backup(volume), volume)
    connector = {"host": "backup", "acstor_host": "backup"}
    harness.driver.validate_connector(connector)
    connection = harness.driver.initialize_connection(device, connector)
    assert connection["data"]["role"] == "owner"
    harness.driver.terminate_connection(device, connector)
    harness.driver.delete_volume(device)
    assert harness.volumes.find(device.id) is None


def test_temporary_snapshots_are_never_used(harness: DriverHarness) -> None:
    assert harness.driver.backup_use_temp_snapshot() is False
