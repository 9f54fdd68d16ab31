"""The driver, data planes and what guests see, together; only the message broker is not there."""

import contextlib
import os
import pathlib
import struct
import threading
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from cinder import exception as cinder_exception
from cinder import objects
from cinder.image import image_utils
from cinder.volume import volume_utils
from oslo_config import cfg

from acstor import exception
from acstor.agent.volume_endpoint import VolumeEndpoint
from acstor.control import protocol
from acstor.control.client import AdminClient
from acstor.drivers.brick import options, registration
from acstor.drivers.brick.volume_calls import VolumeCalls
from acstor.drivers.brick.volume_file import VolumeFile
from acstor.drivers.cinder.back_end import BackEnd, OriginSettings
from acstor.origin.opening import open_origin
from acstor.repository.repository import Repository
from acstor.rpc import agent_client
from testbed.fixtures.cinder_driver import GIB, DriverHarness
from testbed.fixtures.hosts import MIB, Cloud, Host

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

WRITE_BACK = {"acstor:durability": "write-back", "acstor:period": "3600"}
"""Nothing is pushed unless somebody asks for it."""


class SocketHosts:
    """Agents without a broker: their endpoint of messages, over each host's admin socket."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def call(
        self, host: str, method: str, *, timeout: float | None = None, **arguments: Any
    ) -> Any:
        """Answer as the agent of a host does."""
        path = self._cloud.path / host / "dataplane.sock"
        client = AdminClient(str(path), protocol.VOLUME_OPEN_TIMEOUT)
        endpoint = VolumeEndpoint(host, client)
        return agent_client._result(host, getattr(endpoint, method)({}, **arguments))


class Guests(DriverHarness):
    """Attaches volumes and reads and writes them, as guests do."""

    cloud: Cloud

    def connector(self, host: Host) -> dict[str, str]:
        """Return what os-brick tells of a host."""
        return {"host": host.name, "acstor_host": VolumeCalls(str(self._socket(host))).host()}

    @contextlib.contextmanager
    def used(self, volume: Any, host: Host, instance: str | None = None) -> Iterator[VolumeFile]:
        """Attach a volume, yield it as a file, and detach it."""
        file = self.plug(volume, host, instance)
        try:
            yield file
        finally:
            self.unplug(volume, host, file)

    def plug(self, volume: Any, host: Host, instance: str | None = None) -> VolumeFile:
        """Attach a volume; return it as a file."""
        data = self.attach(volume, self.connector(host), instance)["data"]
        opened = VolumeCalls(str(self._socket(host))).open(data["name_id"], data["role"])
        return VolumeFile(opened.socket, opened.export)

    def unplug(self, volume: Any, host: Host, file: VolumeFile) -> None:
        """Close a file and detach the volume."""
        file.close()
        VolumeCalls(str(self._socket(host))).close(volume.name_id)
        self.detach(volume, self.connector(host))

    def read(self, volume: Any, host: Host, offset: int, size: int) -> bytes:
        """Return some of what a volume holds."""
        with self.used(volume, host) as file:
            file.seek(offset)
            return file.read(size)

    @staticmethod
    def _socket(host: Host) -> pathlib.Path:
        return host.path / "volumes.sock"


def put(file: VolumeFile, offset: int, content: bytes) -> None:
    file.seek(offset)
    file.write(content)


@pytest.fixture
def guests(cloud: Cloud, tmp_path: pathlib.Path) -> Iterator[Guests]:
    url = f"posix://{cloud.origin}"
    origin = open_origin(url, 10.0)
    Repository.init(origin)
    back_end = BackEnd(OriginSettings(url, 10.0), origin, SocketHosts(cloud))
    harness = Guests(back_end, None, tmp_path)  # type: ignore[arg-type] # its hosts are real
    harness.cloud = cloud
    with mock.patch.object(
        objects.VolumeAttachmentList, "get_all_by_volume_id", harness.attachments_of
    ):
        yield harness


@pytest.fixture
def host(cloud: Cloud) -> Host:
    return cloud.add_host(agent=False)


@pytest.fixture
def other(cloud: Cloud) -> Host:
    return cloud.add_host(agent=False)


def test_snapshot_clone_and_revert_have_the_content_of_their_time(
    guests: Guests, host: Host, other: Host
) -> None:
    volume = guests.created(volume_type=guests.volume_type(WRITE_BACK))
    first, second = os.urandom(MIB), os.urandom(MIB)
    snapshot = guests.snapshot(volume)
    clone = guests.volume()
    with guests.used(volume, host) as file:
        put(file, 5 * MIB, first)
        guests.driver.create_snapshot(snapshot)
        put(file, 5 * MIB, second)
        guests.driver.create_cloned_volume(clone, volume)
        made = guests.volume()
        guests.driver.create_volume_from_snapshot(made, snapshot)
        assert guests.read(made, other, 5 * MIB, MIB) == first
        assert guests.read(clone, other, 5 * MIB, MIB) == second
        put(file, 6 * MIB, second)
    guests.driver.revert_to_snapshot(guests.context, volume, snapshot)
    assert guests.read(volume, other, 5 * MIB, MIB) == first
    assert guests.read(volume, host, 6 * MIB, MIB) == bytes(MIB)
    guests.driver.delete_snapshot(snapshot)
    for one in (volume, clone, made):
        guests.driver.delete_volume(one)


def test_registered_image_becomes_a_volume_that_can_be_written(
    guests: Guests, host: Host, other: Host
) -> None:
    content = os.urandom(3 * MIB)
    image_id = guests.image(content)
    volume = guests.volume()
    assert guests.driver.clone_image(guests.context, volume, None, {"id": image_id}, None)[1]
    with guests.used(volume, host) as file:
        assert file.read(len(content)) == content
        put(file, MIB, bytes(4096))
    assert guests.read(volume, other, 0, len(content)) == (
        content[:MIB] + bytes(4096) + content[MIB + 4096 :]
    )


def test_copied_image_is_what_the_guest_reads(guests: Guests, host: Host) -> None:
    content = os.urandom(2 * MIB) + bytes(MIB) + os.urandom(MIB)

    def fetch(
        context: Any, service: Any, image_id: str, path: str, blocksize: Any, **more: Any
    ) -> None:
        pathlib.Path(path).write_bytes(content)

    volume = guests.created()
    with mock.patch.object(image_utils, "fetch_to_raw", fetch):
        guests.driver.copy_image_to_volume(guests.context, volume, None, "an image")
    assert guests.read(volume, host, 0, len(content)) == content


def test_image_is_made_of_a_volume_in_use(guests: Guests, host: Host, other: Host) -> None:
    registration.register()
    options.register_opts(cfg.CONF)
    cfg.CONF.set_override("volume_socket", str(other.path / "volumes.sock"), group=options.GROUP)
    volume = guests.created(volume_type=guests.volume_type(WRITE_BACK))
    content, uploaded = os.urandom(MIB), []

    def upload(
        context: Any, service: Any, meta: Any, path: Any, volume: Any, volume_fd: Any
    ) -> None:
        uploaded.append(volume_fd.read(MIB))

    meta = {"id": "x", "disk_format": "raw", "container_format": "bare"}
    try:
        with (
            guests.used(volume, host) as file,
            mock.patch.object(volume_utils, "upload_volume", upload),
        ):
            put(file, 0, content)
            guests.driver.copy_volume_to_image(guests.context, volume, None, meta)
            put(file, 0, content)
    finally:
        cfg.CONF.clear_override("volume_socket", group=options.GROUP)
    assert uploaded == [content]
    assert [one.id for one in guests.volumes.list()] == [volume.id]


def test_extension_and_limits_reach_the_host(guests: Guests, host: Host) -> None:
    volume = guests.created(volume_type=guests.volume_type(WRITE_BACK))
    with guests.used(volume, host) as file:
        put(file, 0, b"x" * 4096)
        guests.driver.extend_volume(volume, 2)
        status = guests.back_end.hosts.call(host.name, "volume_status", volume=volume.id)
        assert status["size_bytes"] == 2 * GIB
        new_type = guests.volume_type({"acstor:durability": "write-through", "acstor:iops": "500"})
        assert guests.driver.retype(guests.context, volume, new_type, {}, {})[0]
        file.seek(0)
        assert file.read(4096) == b"x" * 4096
    with guests.used(volume, host) as file:
        put(file, 2 * GIB - 4096, b"y" * 4096)
    assert guests.read(volume, host, 2 * GIB - 4096, 4096) == b"y" * 4096


def test_second_host_is_refused_and_reads_nothing(guests: Guests, host: Host, other: Host) -> None:
    volume = guests.created()
    with guests.used(volume, host):
        with pytest.raises(cinder_exception.VolumeBackendAPIException, match="detach it there"):
            guests.plug(volume, other)
        with pytest.raises(exception.AcstorError):
            VolumeCalls(str(other.path / "volumes.sock")).open(volume.id)


def test_live_migration_loses_no_write(guests: Guests, host: Host, other: Host) -> None:
    volume = guests.created(volume_type=guests.volume_type(WRITE_BACK))
    instance, content = str(uuid.uuid4()), os.urandom(MIB)
    source = guests.plug(volume, host, instance)
    put(source, 0, content)
    data = guests.attach(volume, guests.connector(other), instance)["data"]
    assert data["role"] == "standby"
    put(source, MIB, content)
    source.close()
    VolumeCalls(str(host.path / "volumes.sock")).close(volume.id)
    opened = VolumeCalls(str(other.path / "volumes.sock")).open(volume.id, data["role"])
    target = VolumeFile(opened.socket, opened.export)
    assert target.read(2 * MIB) == content + content
    put(target, 0, bytes(4096))
    guests.detach(volume, guests.connector(host))
    assert guests.record(volume).hosts == (other.name,)
    guests.unplug(volume, other, target)


def test_group_snapshot_is_of_one_moment(guests: Guests, host: Host, other: Host) -> None:
    """A writer counts in one volume, then in the other: never may the second be ahead."""
    volumes = [guests.created(volume_type=guests.volume_type(WRITE_BACK)) for _ in range(2)]
    files = [guests.plug(volumes[0], host), guests.plug(volumes[1], other)]
    is_over, counts = threading.Event(), [0]

    def count() -> None:
        while not is_over.is_set():
            counts[0] += 1
            for file in files:
                put(file, 0, struct.pack(">Q", counts[0]).ljust(512, b"\0"))

    group = objects.GroupSnapshot(id=str(uuid.uuid4()), group_type_id=str(uuid.uuid4()))
    writer = threading.Thread(target=count)
    writer.start()
    taken = []
    try:
        with mock.patch.object(volume_utils, "is_group_a_cg_snapshot_type", return_value=True):
            for _ in range(3):
                before = counts[0]
                snapshots = [guests.snapshot(volume) for volume in volumes]
                guests.driver.create_group_snapshot(guests.context, group, snapshots)
                taken.append((before, snapshots))
    finally:
        is_over.set()
        writer.join(60)
    for volume, where, file in zip(volumes, (host, other), files, strict=True):
        guests.unplug(volume, where, file)
    for before, snapshots in taken:
        seen = []
        for snapshot in snapshots:
            made = guests.volume()
            guests.driver.create_volume_from_snapshot(made, snapshot)
            seen.append(struct.unpack(">Q", guests.read(made, host, 0, 8))[0])
        assert seen[0] - 1 <= seen[1] <= seen[0]
        assert seen[0] >= before - 1
    assert counts[0] > taken[-1][0]
