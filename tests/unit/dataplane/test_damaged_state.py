"""A served volume whose state on the host is damaged goes on being served."""

import pathlib

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.volumes.store import VolumeStore
from testbed.doubles.memory_volumes import MemoryVolume
from tests.unit.dataplane.stepped_hosts import SteppedHost
from tests.unit.dataplane.volume_hosts import VOLUME


@pytest.fixture
def owner(store: VolumeStore, origin: MemoryOrigin, path: pathlib.Path) -> SteppedHost:
    """h1, which serves the volume."""
    host = SteppedHost("h1", origin, path / "h1")
    host.volumes.opening.open(VOLUME, "owner")
    return host


def device(host: SteppedHost) -> MemoryVolume:
    assert host.device is not None
    return host.device


def test_served_volume_is_not_fenced_for_what_cannot_be_read(owner: SteppedHost) -> None:
    path = pathlib.Path(owner.volumes.files.directory(VOLUME), "volume.json")
    device(owner).write(512)
    sound = path.read_text()
    path.write_text("{")
    with pytest.raises(exception.CorruptError, match="malformed"):
        owner.volumes.opening.open(VOLUME, "owner")
    assert owner.is_served
    path.unlink()
    with pytest.raises(exception.InternalError, match=VOLUME):
        owner.volumes.opening.open(VOLUME, "owner")
    assert owner.is_served
    path.write_text(sound)
    assert owner.volumes.opening.open(VOLUME, "owner")["epoch"] == 1
    assert device(owner).dirty_bytes == 512


def test_volume_resumed_unchecked_is_not_fenced_for_what_cannot_be_read(
    owner: SteppedHost,
) -> None:
    path = pathlib.Path(owner.volumes.files.directory(VOLUME), "volume.json")
    owner.start()
    owner.volumes.resuming.resume(VOLUME, None)  # the origin is away
    sound = path.read_text()
    path.write_text("{")
    owner.step()
    assert owner.is_served
    path.write_text(sound)
    assert owner.volumes.table.unsettled()[1] == [VOLUME], "it is looked at again"
    owner.step()
    assert owner.volumes.table.unsettled()[1] == []
    assert owner.is_served
