"""Cinder's own volume manager with the driver, over Cinder's own tables.

What Cinder does around the driver is Cinder's: the flow that makes volumes, statuses, groups,
attachments. Only the message bus, Glance and Nova are not there.
"""

import pathlib
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import oslo_messaging
import pytest
from cinder import exception as cinder_exception
from cinder import objects, rpc
from cinder.db import api as db_api
from cinder.db import migration
from cinder.image import glance
from cinder.volume import group_types, volume_types
from cinder.volume import manager as cinder_manager
from oslo_config import cfg

from acstor.origin.opening import open_origin
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.fixtures.cinder_driver import GIB, H1, H2, DriverHarness

HOST = "c1@acstor"
POOL = f"{HOST}#ACStor"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cinder's tables, empty but for what its migrations make."""
    path = tmp_path_factory.mktemp("database") / "cinder.sqlite"
    cfg.CONF.set_override("connection", f"sqlite:///{path}", group="database")
    oslo_messaging.get_rpc_transport(cfg.CONF, url="fake:/")  # registers the option
    cfg.CONF.set_override("transport_url", "fake:/")
    db_api.configure(cfg.CONF)
    migration.db_sync()
    rpc.init(cfg.CONF)
    yield
    rpc.cleanup()
    db_api.dispose_engine()
    cfg.CONF.clear_override("connection", group="database")
    cfg.CONF.clear_override("transport_url")


class Cinder:
    """A cinder-volume whose driver has the harness's back-end, and what its API would have done."""

    def __init__(self, harness: DriverHarness) -> None:
        self.harness = harness
        self.context = harness.context
        self.manager = cinder_manager.VolumeManager(
            volume_driver="acstor.drivers.cinder.driver.AcstorVolumeDriver",
            service_name="acstor",
            host=HOST,
        )
        self.driver = self.manager.driver
        self.driver._back_end = harness.back_end
        self.driver.set_initialized()
        self.manager.stats = {"pools": {}, "allocated_capacity_gb": 0}

    def type(self, specs: dict[str, str] | None = None) -> Any:
        """Make a volume type."""
        made = volume_types.create(
            self.context, str(uuid.uuid4()), {"volume_backend_name": "acstor", **(specs or {})}
        )
        return objects.VolumeType.get_by_id(self.context, made["id"])

    def row(self, **fields: Any) -> Any:
        """Make the row of a volume."""
        volume_type = fields.pop("volume_type", None) or self.type()
        values = {
            "size": 1,
            "status": "creating",
            "attach_status": "detached",
            "host": POOL,
            "user_id": self.context.user_id,
            "project_id": self.context.project_id,
            "volume_type_id": volume_type.id,
            "availability_zone": "nova",
            "display_name": "a volume",
            "use_quota": False,
            **fields,
        }
        volume = objects.Volume(self.context, **values)
        volume.create()
        return volume

    def create(self, specification: dict[str, Any] | None = None, **fields: Any) -> Any:
        """Have the manager make a volume; return its row."""
        volume = self.row(**fields)
        request = {
            "volume_id": volume.id,
            "volume_properties": {"size": volume.size},
            **(specification or {}),
        }
        request_spec = objects.RequestSpec.from_primitives(request)
        self.manager.create_volume(
            self.context, volume, request_spec=request_spec, allow_reschedule=False
        )
        volume.refresh()
        return volume

    def snapshot(self, volume: Any, **fields: Any) -> Any:
        """Have the manager take a snapshot; return its row."""
        snapshot = objects.Snapshot(
            self.context,
            volume_id=volume.id,
            status="creating",
            volume_size=volume.size,
            user_id=self.context.user_id,
            project_id=self.context.project_id,
            volume_type_id=volume.volume_type_id,
            use_quota=False,
            **fields,
        )
        snapshot.create()
        if not fields:
            self.manager.create_snapshot(self.context, snapshot)
            snapshot.refresh()
        return snapshot

    def attach(
        self, volume: Any, connector: dict[str, Any], instance: str | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Attach as the API does with attachment-create; return the attachment and its data."""
        attachment = objects.VolumeAttachment(
            self.context,
            volume_id=volume.id,
            instance_uuid=instance or str(uuid.uuid4()),
            attach_status="reserved",
        )
        attachment.create()
        volume.refresh()
        data = self.manager.attachment_update(self.context, volume, dict(connector), attachment.id)
        return attachment, data

    def detach(self, volume: Any, attachment: Any) -> None:
        """Detach as the API does with attachment-delete."""
        volume.refresh()
        self.manager.attachment_delete(self.context, attachment.id, volume)
        volume.refresh()

    def record(self, volume: Any) -> Any:
        """Return what is recorded of a volume."""
        return self.harness.record(volume)


@pytest.fixture
def cinder(database: None, back_end: Any, hosts: Any, tmp_path: Any) -> Cinder:
    return Cinder(DriverHarness(back_end, hosts, tmp_path))


def test_volume_is_made_used_extended_and_deleted(cinder: Cinder) -> None:
    volume = cinder.create()
    assert volume.status == "available"
    attachment, data = cinder.attach(volume, H1)
    assert (data["driver_volume_type"], data["volume_id"]) == ("acstor", volume.id)
    assert (data["role"], data["access_mode"], data["encrypted"]) == ("owner", "rw", False)
    cinder.harness.hosts.open(volume.id, "h1")
    volume.refresh()
    volume.update({"status": "extending", "previous_status": "in-use"})
    volume.save()
    with mock.patch.object(cinder_manager.compute, "API") as nova:
        cinder.manager.extend_volume(cinder.context, volume, 3, [])
    nova.return_value.extend_volume.assert_called_once()
    assert cinder.harness.hosts.open_volumes[volume.id].size_bytes == 3 * GIB
    cinder.harness.hosts.release(volume.id)
    cinder.detach(volume, attachment)
    assert cinder.record(volume).hosts == ()
    cinder.manager.delete_volume(cinder.context, volume)
    assert cinder.harness.volumes.find(volume.id) is None


def test_second_attachment_is_refused_and_the_first_goes_on(cinder: Cinder) -> None:
    volume = cinder.create()
    cinder.attach(volume, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="detach it there first"):
        cinder.attach(volume, H2)
    assert cinder.record(volume).hosts == ("h1",)


def test_live_migration_by_attachments_of_one_instance(cinder: Cinder) -> None:
    volume, instance = cinder.create(), str(uuid.uuid4())
    source, _ = cinder.attach(volume, H1, instance)
    cinder.harness.hosts.open(volume.id, "h1")
    _, data = cinder.attach(volume, H2, instance)
    assert data["role"] == "standby"
    cinder.harness.hosts.release(volume.id)
    cinder.harness.hosts.open(volume.id, "h2")
    cinder.detach(volume, source)
    record = cinder.record(volume)
    assert (record.hosts, record.owner, record.is_standby_allowed) == (("h2",), "h2", False)


def test_volume_from_registered_image_needs_no_glance_data(cinder: Cinder) -> None:
    image_id = cinder.harness.image(b"x" * 4096)
    meta = {
        "id": image_id,
        "name": "image",
        "status": "active",
        "size": 4096,
        "disk_format": "raw",
        "container_format": "bare",
        "properties": {},
        "min_disk": 0,
        "min_ram": 0,
    }
    service = mock.Mock(spec_set=glance.GlanceImageService)
    service.get_location.return_value = (None, None)
    service.show.return_value = meta
    with mock.patch.object(glance, "get_remote_image_service", return_value=(service, image_id)):
        volume = cinder.create({"image_id": image_id}, bootable=False)
    assert volume.status == "available"
    assert volume.bootable is True
    service.download.assert_not_called()
    image = cinder.harness.back_end.repository.get_image(image_id)
    assert cinder.record(volume).manifest == image.record.manifest


def test_snapshot_clone_and_revert(cinder: Cinder) -> None:
    volume = cinder.create()
    attachment, _ = cinder.attach(volume, H1)
    cinder.harness.hosts.open(volume.id, "h1")
    cinder.harness.hosts.write(volume.id, 2)
    snapshot = cinder.snapshot(volume)
    assert snapshot.status == "available"
    cinder.harness.hosts.write(volume.id, 3)
    clone = cinder.create({"source_volid": volume.id}, source_volid=volume.id)
    made = cinder.create({"snapshot_id": snapshot.id}, snapshot_id=snapshot.id)
    assert sum(map(len, cinder.record(clone).logs)) == 5
    assert sum(map(len, cinder.record(made).logs)) == 2
    cinder.harness.hosts.release(volume.id)
    cinder.detach(volume, attachment)
    volume.update({"status": "reverting"})
    volume.save()
    snapshot.update({"status": "restoring"})
    snapshot.save()
    cinder.manager.revert_to_snapshot(cinder.context, volume, snapshot)
    volume.refresh()
    assert volume.status == "available"
    assert sum(map(len, cinder.record(volume).logs)) == 2
    cinder.manager.delete_snapshot(cinder.context, snapshot)
    assert cinder.harness.volumes.find_snapshot(snapshot.id) is None


def test_group_snapshot_of_consistent_group(cinder: Cinder) -> None:
    kind = group_types.create(
        cinder.context, str(uuid.uuid4()), {"consistent_group_snapshot_enabled": "<is> True"}
    )
    group = objects.Group(
        cinder.context,
        name="group",
        status="creating",
        host=POOL,
        group_type_id=kind["id"],
        user_id="user",
        project_id="project",
        volume_type_ids=[],
    )
    group.create()
    cinder.manager.create_group(cinder.context, group)
    volumes = [cinder.create(group_id=group.id) for _ in range(2)]
    cinder.attach(volumes[0], H1)
    cinder.harness.hosts.open(volumes[0].id, "h1")
    cinder.harness.hosts.write(volumes[0].id, 2)
    taken = objects.GroupSnapshot(
        cinder.context,
        group_id=group.id,
        name="taken",
        status="creating",
        group_type_id=kind["id"],
        user_id="user",
        project_id="project",
    )
    taken.create()
    snapshots = [cinder.snapshot(one, group_snapshot_id=taken.id) for one in volumes]
    cinder.manager.create_group_snapshot(cinder.context, taken)
    taken.refresh()
    assert taken.status == "available"
    for snapshot in snapshots:
        snapshot.refresh()
        assert snapshot.status == "available"
        assert cinder.harness.volumes.get_snapshot(snapshot.id).record.group == taken.id
    assert "volume_freeze" in cinder.harness.hosts.methods()
    cinder.manager.delete_group_snapshot(cinder.context, taken)
    assert list(cinder.harness.volumes.list_snapshots()) == []


def test_managed_volume_is_the_one_in_the_repository(cinder: Cinder) -> None:
    old = cinder.create()
    disk = old.id
    cinder.driver.unmanage(old)
    volume = cinder.row()
    cinder.manager.manage_existing(cinder.context, volume, {"source-name": disk})
    volume.refresh()
    assert volume.status == "available"
    assert volume.size == 1
    assert volume.name_id == disk
    _, data = cinder.attach(volume, H1)
    assert (data["volume_id"], data["name_id"]) == (volume.id, disk)
    listed = cinder.manager.get_manageable_volumes(
        cinder.context, None, 10, 0, ["size"], ["asc"], want_objects=False
    )
    found = {one["reference"]["source-name"]: one for one in listed}
    assert found[disk]["safe_to_manage"] is False


def test_retype_of_volume_in_use_changes_its_host(cinder: Cinder) -> None:
    volume = cinder.create()
    cinder.attach(volume, H1)
    cinder.harness.hosts.open(volume.id, "h1")
    new_type = cinder.type({"acstor:durability": "write-back"})
    volume.refresh()
    volume.update({"status": "retyping", "previous_status": "in-use"})
    volume.save()
    cinder.manager.retype(
        cinder.context, volume, new_type.id, {"host": POOL, "capabilities": {}}, "never", []
    )
    volume.refresh()
    assert volume.status == "in-use"
    assert volume.volume_type_id == new_type.id
    fields = cinder.harness.hosts.open_volumes[volume.id].durability
    assert isinstance(fields, dict)
    assert fields["default"] == "write-back"


def test_migration_within_the_repository_is_assisted(cinder: Cinder) -> None:
    volume = cinder.create()
    service = mock.Mock(availability_zone="nova", uuid=str(uuid.uuid4()))
    host = {
        "host": "c2@acstor#ACStor",
        "capabilities": {"location_info": cinder.harness.back_end.location},
    }
    with mock.patch.object(cinder.manager, "_get_service", return_value=service):
        cinder.manager.migrate_volume(cinder.context, volume, host)
    volume.refresh()
    assert volume.host == "c2@acstor#ACStor"
    assert volume.migration_status == "success"
    assert db_api.volume_get(cinder.context, volume.id)["_name_id"] is None


def test_stats_are_what_the_manager_reports(cinder: Cinder) -> None:
    cinder.manager.publish_service_capabilities(cinder.context)
    stats = cinder.manager.last_capabilities
    assert stats["storage_protocol"] == "acstor"
    assert stats["backend_state"] == "up"


def test_service_starts_and_forgets_what_a_killed_one_left(
    cinder: Cinder, tmp_path: pathlib.Path
) -> None:
    """From the configuration on: set-up, capabilities, exports of volumes that are there."""
    url = f"posix://{tmp_path}"
    Repository.init(open_origin(url, 1.0))
    cfg.CONF.set_override("acstor_origin_url", url, group="acstor")
    try:
        manager = cinder_manager.VolumeManager(
            volume_driver="acstor.drivers.cinder.driver.AcstorVolumeDriver",
            service_name="acstor",
            host=HOST,
            cluster="a-cluster@acstor",
        )
        row = cinder.row(status="available")
        VolumeStore(Repository.open(open_origin(url, 1.0))).create(NewVolume(row.id, GIB))
        VolumeStore(Repository.open(open_origin(url, 1.0))).allow_host(row.id, "h1")
        with mock.patch.object(manager, "_get_my_volumes", return_value=[row]):
            manager.init_host(added_to_cluster=False, service_id=1)
    finally:
        cfg.CONF.clear_override("acstor_origin_url", group="acstor")
    assert manager.driver.initialized
    assert manager.driver.capabilities["vendor_prefix"] == "acstor"
    assert manager.driver.back_end.volumes.get(row.id).record.hosts == ()


def test_service_without_origin_does_not_start_and_says_why(
    cinder: Cinder, caplog: pytest.LogCaptureFixture
) -> None:
    cfg.CONF.set_override("acstor_conf", "/absent/acstor.conf", group="acstor")
    try:
        manager = cinder_manager.VolumeManager(
            volume_driver="acstor.drivers.cinder.driver.AcstorVolumeDriver",
            service_name="acstor",
            host=HOST,
        )
        manager.init_host(added_to_cluster=False, service_id=1)
    finally:
        cfg.CONF.clear_override("acstor_conf", group="acstor")
    assert not manager.driver.initialized
    assert "set acstor_origin_url" in caplog.text
