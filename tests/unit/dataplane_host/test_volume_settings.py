"""Size, limits and durability of a volume that is open."""

import pathlib
from typing import Any

import pytest

from acstor.dataplane_host.kept_volume import KeptVolume
from acstor.origin.memory import MemoryOrigin
from acstor.volumes.store import VolumeStore
from tests.doubles.memory_volumes import MemoryVolume
from tests.unit.dataplane_host.stepped_hosts import SteppedHost
from tests.unit.dataplane_host.volume_hosts import VOLUME


@pytest.fixture
def owner(store: VolumeStore, origin: MemoryOrigin, path: pathlib.Path) -> SteppedHost:
    """h1, which serves the volume."""
    host = SteppedHost("h1", origin, path / "h1")
    host.volumes.open(VOLUME, "owner")
    return host


def device(host: SteppedHost) -> MemoryVolume:
    assert host.device is not None
    return host.device


def kept(host: SteppedHost) -> KeptVolume:
    found = host.volumes._files.find(VOLUME)
    assert found is not None
    return found


def restart(host: SteppedHost) -> None:
    """Have the process end and the next one resume, while the origin is away."""
    host.start()
    host.volumes.resume(VOLUME, None)


def test_setting_that_changes_while_a_fold_is_installed_leaves_its_manifest(
    owner: SteppedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = owner.volumes
    install = volumes._owner.install_fold

    def install_late(*arguments: Any) -> Any:
        volumes.set_limits(VOLUME, 7, 0)
        return install(*arguments)

    monkeypatch.setattr(volumes._owner, "install_fold", install_late)
    words = [device(owner).write(512)]
    volumes.push(VOLUME)
    assert volumes.fold(VOLUME)["is_folded"]
    restart(owner)
    assert owner.is_served, "without the origin"
    assert (device(owner).words, device(owner).limits) == (words, (7, 0))
    found = list(pathlib.Path(volumes._files.directory(VOLUME)).glob("*.manifest"))
    assert [path.stem for path in found] == [kept(owner).manifest]
