"""Volumes from images, and images from volumes."""

import pathlib
import random
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from cinder import exception as cinder_exception
from cinder.image import image_utils
from cinder.volume import volume_utils
from oslo_config import cfg

from acstor import exception
from acstor.drivers.brick import connector, options, registration
from acstor.repository import layout
from acstor.repository.disk_manifest import PagedManifest
from acstor.repository.images import image_registry
from acstor.repository.images.image_registry import Entry, EntryState
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION
from testbed.doubles.memory_nbd_server import MemoryNbdServer
from testbed.doubles.volume_socket import MemoryVolumeSocket
from testbed.fixtures.cinder_driver import CHUNK_SIZE, GIB, H1, DriverHarness

CONTENT = random.Random(1).randbytes(5 * CHUNK_SIZE) + bytes(CHUNK_SIZE)


@pytest.fixture
def image_file() -> Iterator[dict[str, bytes]]:
    """Images of Glance, which are fetched as Cinder does, without conversion."""
    images: dict[str, bytes] = {}

    def fetch(
        context: Any, service: Any, image_id: str, path: str, blocksize: Any, **more: Any
    ) -> None:
        pathlib.Path(path).write_bytes(images[image_id])

    with mock.patch.object(image_utils, "fetch_to_raw", fetch):
        yield images


@pytest.mark.parametrize("repository", [INDEX_VERSION, COMPRESSED_VERSION], indirect=True)
def test_registered_image_becomes_a_volume_without_a_copy(harness: DriverHarness) -> None:
    image_id = harness.image(CONTENT)
    objects_before = set(harness.back_end.repository.origin.list(""))
    volume = harness.volume(size=2)
    update, cloned = harness.driver.clone_image(
        harness.context, volume, None, {"id": image_id}, None
    )
    assert (update, cloned) == ({}, True)
    record = harness.record(volume)
    assert record.manifest == harness.back_end.repository.get_image(image_id).record.manifest
    assert record.size_bytes == 2 * GIB
    assert set(harness.back_end.repository.origin.list("")) == objects_before


def test_image_that_is_not_registered_is_left_to_the_copy(harness: DriverHarness) -> None:
    volume = harness.volume()
    meta = {"id": str(uuid.uuid4())}
    assert harness.driver.clone_image(harness.context, volume, None, meta, None) == ({}, False)
    assert harness.volumes.find(volume.id) is None


@pytest.mark.parametrize(
    "state", [EntryState.LEFT, EntryState.WITHDRAWN, EntryState.REGISTERING, EntryState.FAILED]
)
def test_image_that_is_not_to_be_used_is_left_to_the_copy(
    harness: DriverHarness, state: EntryState
) -> None:
    image_id = harness.image(CONTENT)
    entries = image_registry.ImageRegistry(harness.back_end.repository.origin)
    entries.replace(image_id, None, Entry(state))
    volume = harness.volume()
    meta = {"id": image_id}
    assert harness.driver.clone_image(harness.context, volume, None, meta, None) == ({}, False)


def test_image_that_the_registrar_registered_is_cloned(harness: DriverHarness) -> None:
    image_id = harness.image(CONTENT)
    entries = image_registry.ImageRegistry(harness.back_end.repository.origin)
    entries.replace(image_id, None, Entry(EntryState.REGISTERED))
    assert harness.driver.clone_image(
        harness.context, harness.volume(), None, {"id": image_id}, None
    )[1]


def test_image_that_is_collected_meanwhile_is_left_to_the_copy(harness: DriverHarness) -> None:
    image_id = harness.image(CONTENT)
    manifest = harness.back_end.repository.get_image(image_id).record.manifest
    harness.back_end.repository.origin.delete(layout.manifest_key(manifest))
    volume = harness.volume()
    meta = {"id": image_id}
    assert harness.driver.clone_image(harness.context, volume, None, meta, None) == ({}, False)
    assert harness.volumes.find(volume.id) is None


def test_image_that_hosts_cannot_write_over_is_left_to_the_copy(harness: DriverHarness) -> None:
    image_id = harness.image(CONTENT)
    volume = harness.volume()
    meta = {"id": image_id}
    refusal = exception.UnsupportedError("hosts cannot write over it")
    with mock.patch.object(harness.volumes, "create_from_manifest", side_effect=refusal):
        answer = harness.driver.clone_image(harness.context, volume, None, meta, None)
    assert answer == ({}, False)
    assert harness.volumes.find(volume.id) is None


def test_image_that_is_larger_than_the_volume_is_refused(harness: DriverHarness) -> None:
    image_id = harness.image(CONTENT)
    volume = harness.volume(size=0)
    with pytest.raises(cinder_exception.ImageUnacceptable, match="more than the 0 GiB"):
        harness.driver.clone_image(harness.context, volume, None, {"id": image_id}, None)


@pytest.mark.parametrize("repository", [INDEX_VERSION, COMPRESSED_VERSION], indirect=True)
def test_copied_image_is_the_content_of_the_volume(
    harness: DriverHarness, image_file: dict[str, bytes]
) -> None:
    image_id = str(uuid.uuid4())
    image_file[image_id] = CONTENT
    volume = harness.created(size=2)
    harness.driver.copy_image_to_volume(harness.context, volume, None, image_id)
    record = harness.record(volume)
    assert record.size_bytes == 2 * GIB
    assert harness.content(record.manifest, len(CONTENT)) == CONTENT
    manifest = harness.back_end.repository.load_manifest(record.manifest)
    is_compressed = harness.back_end.repository.has_compressed_images
    assert isinstance(manifest, PagedManifest) is is_compressed


@pytest.mark.parametrize("repository", [INDEX_VERSION, COMPRESSED_VERSION], indirect=True)
def test_copied_image_stores_only_chunks_that_are_new(
    harness: DriverHarness, image_file: dict[str, bytes]
) -> None:
    harness.image(CONTENT)
    packs = set(harness.back_end.repository.origin.list("packs/"))
    image_id = str(uuid.uuid4())
    image_file[image_id] = CONTENT
    volume = harness.created()
    harness.driver.copy_image_to_volume(harness.context, volume, None, image_id)
    assert set(harness.back_end.repository.origin.list("packs/")) == packs
    assert harness.content(harness.record(volume).manifest, len(CONTENT)) == CONTENT


def test_reimage_replaces_the_content_and_keeps_snapshots(
    harness: DriverHarness, image_file: dict[str, bytes]
) -> None:
    image_id, other = str(uuid.uuid4()), str(uuid.uuid4())
    image_file.update({image_id: CONTENT, other: CONTENT[CHUNK_SIZE:]})
    volume = harness.created()
    harness.driver.copy_image_to_volume(harness.context, volume, None, image_id)
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    harness.driver.copy_image_to_volume(harness.context, volume, None, other, disable_sparse=True)
    assert (
        harness.content(harness.record(volume).manifest, CHUNK_SIZE)
        == CONTENT[CHUNK_SIZE : 2 * CHUNK_SIZE]
    )
    harness.driver.revert_to_snapshot(harness.context, volume, snapshot)
    assert harness.content(harness.record(volume).manifest, len(CONTENT)) == CONTENT


def test_copy_to_attached_volume_is_refused(
    harness: DriverHarness, image_file: dict[str, bytes]
) -> None:
    image_id = str(uuid.uuid4())
    image_file[image_id] = CONTENT
    volume = harness.created()
    harness.attach(volume, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="attached on h1"):
        harness.driver.copy_image_to_volume(harness.context, volume, None, image_id)


def test_copy_with_full_origin_says_so(
    harness: DriverHarness, image_file: dict[str, bytes]
) -> None:
    image_id = str(uuid.uuid4())
    image_file[image_id] = CONTENT
    volume = harness.created()
    importer = harness.back_end.importer
    full = exception.ExhaustedError("the origin is full", hint="make room")
    with (
        mock.patch.object(importer._origin, "put_if_absent", side_effect=full),
        pytest.raises(cinder_exception.VolumeBackendAPIException, match="is full; make room"),
    ):
        harness.driver.copy_image_to_volume(harness.context, volume, None, image_id)


def test_temporary_files_are_removed(
    harness: DriverHarness, image_file: dict[str, bytes], tmp_path: pathlib.Path
) -> None:
    image_id = str(uuid.uuid4())
    image_file[image_id] = CONTENT
    harness.back_end._temporary_directory = str(tmp_path)
    before = sorted(tmp_path.iterdir())
    harness.driver.copy_image_to_volume(harness.context, harness.created(), None, image_id)
    assert sorted(tmp_path.iterdir()) == before


class DataPlaneHere:
    """The data plane of the host of cinder-volume: one volume after the other, same content."""

    def __init__(self, path: pathlib.Path) -> None:
        self.socket = MemoryVolumeSocket(str(path / "volumes.sock"), host="c1")
        self.path = path
        self.opened: list[str] = []
        self.server: MemoryNbdServer | None = None

    def connect(self, data: dict[str, Any]) -> dict[str, Any]:
        """Connect as the connector does, with the export made first."""
        name = data["volume_id"]
        self.opened.append(name)
        size = 1 << 20
        self.server = MemoryNbdServer(str(self.path / "nbd.sock"), name, size)
        self.server.content[: len(CONTENT)] = CONTENT
        self.server.start()
        self.socket.sizes[name] = size
        self.socket.sockets[name] = str(self.path / "nbd.sock")
        return ORIGINAL_CONNECT(connector.AcstorConnector("sudo"), data)


ORIGINAL_CONNECT = connector.AcstorConnector.connect_volume


@pytest.fixture
def here(tmp_path: pathlib.Path) -> Iterator[DataPlaneHere]:
    registration.register()
    found = DataPlaneHere(tmp_path)
    found.socket.start()
    options.register_opts(cfg.CONF)
    cfg.CONF.set_override("volume_socket", found.socket.path, group=options.GROUP)
    with mock.patch.object(
        connector.AcstorConnector, "connect_volume", lambda self, data: found.connect(data)
    ):
        yield found
    cfg.CONF.clear_override("volume_socket", group=options.GROUP)
    found.socket.stop()
    if found.server is not None:
        found.server.stop()


def test_raw_image_is_read_from_a_clone(harness: DriverHarness, here: DataPlaneHere) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.write(volume.id, 2)
    uploaded = []

    def upload(
        context: Any, service: Any, meta: Any, path: Any, volume: Any, volume_fd: Any
    ) -> None:
        uploaded.append(volume_fd.read(len(CONTENT)))
        clone = harness.volumes.get(here.opened[0]).record
        assert clone.hosts == ("c1",)
        assert sum(map(len, clone.logs)) == 2

    meta = {"id": "x", "disk_format": "raw", "container_format": "bare"}
    with mock.patch.object(volume_utils, "upload_volume", upload):
        harness.driver.copy_volume_to_image(harness.context, volume, None, meta)
    assert uploaded == [CONTENT]
    assert here.opened[0] != volume.id
    assert harness.volumes.find(here.opened[0]) is None
    assert harness.record(volume).owner == "h1"


def test_other_image_is_read_by_qemu_img(harness: DriverHarness, here: DataPlaneHere) -> None:
    volume = harness.created()
    commands: list[tuple[Any, ...]] = []

    def execute(*command: Any, **more: Any) -> tuple[str, str]:
        commands.append(command)
        return "", ""

    harness.driver._execute = execute
    meta = {"id": "x", "disk_format": "qcow2", "container_format": "bare"}
    with mock.patch.object(volume_utils, "upload_volume") as upload:
        harness.driver.copy_volume_to_image(harness.context, volume, None, meta)
    assert commands[0][:6] == ("qemu-img", "convert", "-f", "raw", "-O", "raw")
    assert commands[0][6].startswith("nbd+unix:///")
    assert upload.call_args.args[3] == commands[0][7]
    assert harness.volumes.find(here.opened[0]) is None


def test_clone_for_reading_goes_when_the_upload_fails(
    harness: DriverHarness, here: DataPlaneHere
) -> None:
    volume = harness.created()
    meta = {"id": "x", "disk_format": "raw", "container_format": "bare"}
    with (
        mock.patch.object(volume_utils, "upload_volume", side_effect=ValueError("no")),
        pytest.raises(ValueError, match="no"),
    ):
        harness.driver.copy_volume_to_image(harness.context, volume, None, meta)
    assert [one.id for one in harness.volumes.list()] == [volume.id]


def test_upload_without_data_plane_says_what_to_do(
    harness: DriverHarness, tmp_path: pathlib.Path
) -> None:
    registration.register()
    options.register_opts(cfg.CONF)
    cfg.CONF.set_override("volume_socket", str(tmp_path / "absent"), group=options.GROUP)
    volume = harness.created()
    meta = {"id": "x", "disk_format": "raw", "container_format": "bare"}
    try:
        with pytest.raises(
            cinder_exception.VolumeBackendAPIException, match="run acstor-dataplane there"
        ):
            harness.driver.copy_volume_to_image(harness.context, volume, None, meta)
    finally:
        cfg.CONF.clear_override("volume_socket", group=options.GROUP)
    assert [one.id for one in harness.volumes.list()] == [volume.id]
