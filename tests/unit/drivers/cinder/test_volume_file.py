"""Cinder's use of the file of a volume: copying, backing up, restoring."""

import os
import pathlib

import pytest
from cinder.volume import volume_utils

from acstor.drivers.brick.volume_file import VolumeFile
from testbed.doubles.memory_nbd_server import MemoryNbdServer
from tests.unit.drivers.conftest import SIZE, VOLUME

MIB = 1 << 20


def test_cinder_copies_from_file_to_file(nbd: MemoryNbdServer, tmp_path: pathlib.Path) -> None:
    nbd.content[:] = os.urandom(SIZE)
    other = MemoryNbdServer(str(tmp_path / "other.sock"), VOLUME, SIZE, block_size=512)
    other.start()
    try:
        with (
            VolumeFile(nbd._path, VOLUME) as source,
            VolumeFile(other._path, VOLUME) as destination,
        ):
            volume_utils.copy_volume(source, destination, SIZE // MIB, "1M")
            assert other.content == nbd.content
            assert other.requests[-1][0] == 3, "what was copied is flushed"
    finally:
        other.stop()


def test_cinder_copies_between_a_path_and_a_file(
    nbd: MemoryNbdServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbd.content[:] = os.urandom(SIZE)
    path = tmp_path / "volume"
    path.write_bytes(bytes(SIZE))
    monkeypatch.setattr(volume_utils, "_open_volume_with_path", open)
    with VolumeFile(nbd._path, VOLUME) as source:
        volume_utils.copy_volume(source, str(path), SIZE // MIB, "1M")
    assert path.read_bytes() == nbd.content
    path.write_bytes(content := os.urandom(SIZE))
    with VolumeFile(nbd._path, VOLUME) as destination:
        volume_utils.copy_volume(str(path), destination, SIZE // MIB, "1M")
    assert nbd.content == content
