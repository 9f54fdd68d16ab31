"""LUKS headers, written by the real qemu-img and read back by it."""

import json
import os
import pathlib
import random
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from castellan import key_manager
from castellan.common.objects import passphrase
from cinder import exception as cinder_exception
from cinder import objects
from cinder.image import image_utils
from cinder.volume import volume_utils
from oslo_concurrency import processutils

from acstor import exception
from acstor.drivers.cinder import encryption
from testbed.fixtures.cinder_driver import CHUNK_SIZE, GIB, H1, DriverHarness

KEY = "a key"
SECRET = KEY.encode().hex()
CONTENT = random.Random(2).randbytes(8 * CHUNK_SIZE)


@pytest.fixture(autouse=True)
def keys() -> Iterator[dict[str, Any]]:
    """One key, and what Cinder's database says of the volume type's encryption."""
    manager = mock.Mock(spec_set=["get"])
    manager.get.return_value = passphrase.Passphrase(KEY.encode())
    described = {
        "provider": "luks",
        "cipher": "aes-xts-plain64",
        "key_size": 256,
        "encryption_key_id": str(uuid.uuid4()),
    }
    with (
        mock.patch.object(key_manager, "API", return_value=manager),
        mock.patch.object(
            volume_utils.db, "volume_encryption_metadata_get", return_value=described
        ),
        mock.patch.object(image_utils.utils, "execute", _execute),
    ):
        yield described


_formatted: dict[str, tuple[bytes, int]] = {}
"""Results of qemu-img for an empty disk, by size: its first bytes, and its length. Deriving keys
takes qemu-img seconds, and every volume here has the same key."""


def _execute(*command: Any, **more: Any) -> tuple[str, str]:
    """Run a command as Cinder does; a disk that was formatted before is made of what is known."""
    words = [str(one) for one in command]
    if words[:2] != ["qemu-img", "create"]:
        found: tuple[str, str] = processutils.execute(*words, timeout=120)
        return found
    path, size = pathlib.Path(words[-2]), words[-1]
    if size not in _formatted:
        processutils.execute(*words[:2], "-o", "iter-time=10", *words[2:], timeout=120)
        with path.open("rb") as file:
            _formatted[size] = (file.read(4 << 20), path.stat().st_size)
    head, length = _formatted[size]
    path.write_bytes(head)
    os.truncate(path, length)
    return "", ""


def _stored(harness: DriverHarness, volume: Any, size: int, path: pathlib.Path) -> pathlib.Path:
    """Write the first bytes of what is stored of a volume into a file as long as the volume."""
    record = harness.record(volume)
    file = path / "disk"
    file.write_bytes(harness.content(record.manifest, size))
    with file.open("r+b") as stream:
        stream.truncate(record.size_bytes)
    return file


def _decrypted(file: pathlib.Path, path: pathlib.Path, size: int) -> bytes:
    """Return the first bytes of what a guest would see, by QEMU."""
    raw = path / "decrypted"
    subprocess.run(
        [
            "qemu-img",
            "dd",
            "--object",
            f"secret,id=sec,data={SECRET}",
            "--image-opts",
            f"if=driver=luks,key-secret=sec,file.filename={file}",
            f"of={raw}",
            "bs=4096",
            f"count={size // 4096}",
        ],
        check=True,
        timeout=120,
        capture_output=True,
    )
    return raw.read_bytes()


@pytest.fixture
def encrypted(harness: DriverHarness, keys: dict[str, Any]) -> Any:
    harness.driver._execute = _execute
    return harness.volume(encryption_key_id=str(uuid.uuid4()))


def test_empty_encrypted_volume_has_a_header_and_room_for_all_of_it(
    harness: DriverHarness, encrypted: Any, tmp_path: pathlib.Path
) -> None:
    harness.driver.create_volume(encrypted)
    record = harness.record(encrypted)
    header = encryption.header_bytes(record.size_bytes)
    assert record.size_bytes == GIB + header
    assert 0 < header < 64 << 20
    file = _stored(harness, encrypted, header + (1 << 20), tmp_path)
    told = json.loads(
        subprocess.run(
            ["qemu-img", "info", "--output=json", "-f", "luks", str(file)],
            check=True,
            capture_output=True,
            timeout=60,
        ).stdout
    )
    assert told["virtual-size"] == GIB
    assert encryption.header_of(str(file)) == header


def test_connection_of_encrypted_volume_says_so(harness: DriverHarness, encrypted: Any) -> None:
    harness.driver.create_volume(encrypted)
    assert harness.attach(encrypted, H1)["data"]["encrypted"] is True


def test_image_is_stored_encrypted_and_read_with_the_key(
    harness: DriverHarness, encrypted: Any, tmp_path: pathlib.Path
) -> None:
    def fetch(
        context: Any, service: Any, image_id: str, path: str, blocksize: Any, **more: Any
    ) -> None:
        pathlib.Path(path).write_bytes(CONTENT)

    harness.driver.create_volume(encrypted)
    with mock.patch.object(image_utils, "fetch_to_raw", fetch):
        harness.driver.copy_image_to_encrypted_volume(harness.context, encrypted, None, "an image")
    record = harness.record(encrypted)
    header = encryption.header_bytes(record.size_bytes)
    assert record.size_bytes == GIB + header
    size = header + len(CONTENT)
    assert CONTENT[:CHUNK_SIZE] not in harness.content(record.manifest, size)
    file = _stored(harness, encrypted, size, tmp_path)
    assert _decrypted(file, tmp_path, len(CONTENT)) == CONTENT


def test_clone_and_extension_keep_the_header(harness: DriverHarness, encrypted: Any) -> None:
    harness.driver.create_volume(encrypted)
    header = encryption.header_bytes(harness.record(encrypted).size_bytes)
    clone = harness.volume(size=2, encryption_key_id=str(uuid.uuid4()))
    harness.driver.create_cloned_volume(clone, encrypted)
    assert harness.record(clone).size_bytes == 2 * GIB + header
    harness.driver.extend_volume(clone, 3)
    assert harness.record(clone).size_bytes == 3 * GIB + header
    snapshot = harness.snapshot(clone)
    harness.driver.create_snapshot(snapshot)
    made = harness.volume(size=4, encryption_key_id=str(uuid.uuid4()))
    harness.driver.create_volume_from_snapshot(made, snapshot)
    assert harness.record(made).size_bytes == 4 * GIB + header


def test_extension_of_attached_encrypted_volume_is_refused(
    harness: DriverHarness, encrypted: Any
) -> None:
    harness.driver.create_volume(encrypted)
    harness.attach(encrypted, H1)
    with pytest.raises(cinder_exception.VolumeDriverException, match="detach it, extend it"):
        harness.driver.extend_volume(encrypted, 2)


def test_other_providers_are_refused(
    harness: DriverHarness, encrypted: Any, keys: dict[str, Any]
) -> None:
    keys["provider"] = "luks2"
    with pytest.raises(
        cinder_exception.VolumeDriverException, match=r"luks2 not supported.*provider luks"
    ):
        harness.driver.create_volume(encrypted)
    assert harness.volumes.find(encrypted.id) is None


def test_copy_of_encrypted_volume_is_refused(harness: DriverHarness, encrypted: Any) -> None:
    plain = harness.created()
    for source, copy in ((encrypted, plain), (plain, encrypted)):
        with pytest.raises(cinder_exception.VolumeDriverException, match="copy there"):
            harness.driver.before_volume_copy(harness.context, source, copy, remote="dest")
    harness.driver.before_volume_copy(harness.context, plain, harness.volume(), remote="dest")


def test_volume_to_copy_into_is_not_made_where_either_is_encrypted(
    harness: DriverHarness, encrypted: Any
) -> None:
    plain = harness.volume()
    sources = {encrypted.id: encrypted, plain.id: plain}
    with mock.patch.object(
        objects.Volume, "get_by_id", side_effect=lambda context, volume_id: sources[volume_id]
    ):
        for source, key in ((encrypted, None), (plain, encrypted.encryption_key_id)):
            copy = harness.volume(migration_status=f"target:{source.id}", encryption_key_id=key)
            with pytest.raises(cinder_exception.VolumeDriverException, match="copy there"):
                harness.driver.create_volume(copy)
            assert harness.volumes.find(copy.id) is None
        harness.created(migration_status=f"target:{plain.id}")


def test_passphrase_is_in_no_command_and_in_no_file_afterwards(
    harness: DriverHarness, encrypted: Any, tmp_path: pathlib.Path
) -> None:
    commands: list[str] = []

    def execute(*command: Any, **more: Any) -> tuple[str, str]:
        commands.append(" ".join(map(str, command)))
        modes = [oct(one.stat().st_mode & 0o077) for one in tmp_path.glob("luks_*")]
        assert modes == ["0o0"]
        return _execute(*command)

    harness.driver._execute = execute
    harness.back_end._temporary_directory = str(tmp_path)
    harness.driver.create_volume(encrypted)
    assert commands
    assert not any(SECRET in command for command in commands)
    assert list(tmp_path.glob("*luks*")) == []


def test_file_without_header_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    for content in (b"", bytes(512), b"LUKS\xba\xbe\0\x02" + bytes(504)):
        path.write_bytes(content)
        with pytest.raises(exception.InvalidError, match="no LUKS header"):
            encryption.header_of(str(path))
