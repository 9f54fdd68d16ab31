"""Manifests below volumes, of either version: at hand, and fetched again where they are damaged."""

import pathlib

import pytest

from acstor import exception
from acstor.dataplane.volumes import reconciler
from acstor.native import manifest_name
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.manifests import CHUNK_SIZE, make_manifest, make_paged_manifest
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest

OF_IMAGE = "c6a3a6c0-3f2b-4f6b-8f1c-6a6a35a7a0de"


def put_manifest(origin: MemoryOrigin, content: bytes, tmp_path: pathlib.Path) -> str:
    """Store a manifest of either version; return its name."""
    (tmp_path / "manifest").write_bytes(content)
    digest = manifest_name(str(tmp_path / "manifest"))
    origin.put_if_absent(layout.manifest_key(digest), [content])
    return digest


@pytest.fixture(params=["whole", "paged"])
def of_image(
    request: pytest.FixtureRequest,
    store: VolumeStore,
    origin: MemoryOrigin,
    tmp_path: pathlib.Path,
) -> bytes:
    """Make a volume of an image, which h1 may open; return the bytes of the manifest."""
    is_paged = request.param == "paged"
    content = make_paged_manifest(OF_IMAGE) if is_paged else make_manifest(OF_IMAGE).to_bytes()
    digest = put_manifest(origin, content, tmp_path)
    store.create_from_manifest(NewVolume(OF_IMAGE, 16 * CHUNK_SIZE), digest)
    store.allow_host(OF_IMAGE, "h1")
    return content


def flipped(content: bytes, position: int) -> bytes:
    """Return bytes of which one bit is wrong."""
    damaged = bytearray(content)
    damaged[position] ^= 1
    return bytes(damaged)


def is_served(host: HostUnderTest) -> bool:
    return str(host.client.call("volume.status", volume=OF_IMAGE)["state"]) == "serving"


def manifest_file(host: HostUnderTest) -> pathlib.Path:
    assert host.plane.runtime is not None
    path = host.plane.runtime.volumes[OF_IMAGE].manifest_path
    assert path is not None
    return pathlib.Path(path)


def test_volume_of_an_image_has_its_manifest_at_hand(host: HostUnderTest, of_image: bytes) -> None:
    host.client.call("volume.open", volume=OF_IMAGE, role="owner")
    assert manifest_file(host).read_bytes() == of_image


def test_damaged_manifest_is_fetched_again_before_its_volume_is_served(
    host: HostUnderTest, of_image: bytes
) -> None:
    host.client.call("volume.open", volume=OF_IMAGE, role="owner")
    for damaged in (of_image[:100], flipped(of_image, 70)):
        manifest_file(host).write_bytes(damaged)
        host.restart()
        wait_for("it is served", lambda: is_served(host))
        assert manifest_file(host).read_bytes() == of_image


def test_manifest_of_another_disk_is_fetched_again(host: HostUnderTest, of_image: bytes) -> None:
    host.client.call("volume.open", volume=OF_IMAGE, role="owner")
    manifest_file(host).write_bytes(make_manifest(VOLUME).to_bytes())
    host.restart()
    wait_for("it is served", lambda: is_served(host))
    assert manifest_file(host).read_bytes() == of_image


def test_page_that_is_found_damaged_is_fetched_again_while_guests_read(
    host: HostUnderTest, of_image: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    host.restart()
    host.client.call("volume.open", volume=OF_IMAGE, role="owner")
    manifest_file(host).write_bytes(flipped(of_image, -1))
    assert host.plane.runtime is not None
    device = host.plane.runtime.volumes[OF_IMAGE]
    device.is_manifest_damaged = True
    wait_for("the manifest is put below it again", lambda: not device.is_manifest_damaged)
    assert manifest_file(host).read_bytes() == of_image


def test_manifest_that_is_damaged_in_the_origin_is_not_taken(
    host: HostUnderTest, of_image: bytes, origin: MemoryOrigin, store: VolumeStore
) -> None:
    key = layout.manifest_key(str(store.get(OF_IMAGE).record.manifest))
    origin.delete(key)
    origin.put_if_absent(key, [flipped(of_image, -1)])
    with pytest.raises(exception.CorruptError):
        host.client.call("volume.open", volume=OF_IMAGE, role="owner")
    assert host.client.call("volume.list") == []
