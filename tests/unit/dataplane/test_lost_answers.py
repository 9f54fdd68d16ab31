"""Answers of the origin that are lost after the call took effect, at every call of every change.

Whatever is lost, and whether the process is killed with it: what a guest was told is in the
volume, a host that does not know that it is the owner serves nobody, and guests go on at last.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import pytest

from acstor import exception
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.folds.folds import VolumeFolds
from acstor.dataplane.volumes.handover import fetching
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.origin.memory import MemoryOrigin
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.memory_volumes import words_of
from tests.unit.dataplane.stepped_hosts import Loss, SteppedHost
from tests.unit.dataplane.volume_hosts import SIZE, VOLUME

CALLS_MAX = 60
"""No change needs more calls of the origin."""


class Cloud:
    """Two hosts, and the history of what guests wrote."""

    def __init__(self, directory: pathlib.Path, number: int) -> None:
        self.origin = MemoryOrigin()
        self.repository = Repository.init(self.origin)
        self.store = VolumeStore(self.repository, wait=lambda seconds: None)
        self.store.create(NewVolume(VOLUME, SIZE))
        self.store.allow_host(VOLUME, "h1")
        self.hosts = {
            name: SteppedHost(name, self.origin, directory / f"{number}{name}")
            for name in ("h1", "h2")
        }
        self.history: list[str] = []

    def write(self, host: SteppedHost) -> None:
        """Have the guest of a host write and flush, if it is served."""
        if host.is_served:
            assert host.device is not None
            assert host.device.words == self.history, f"{host.name} shows another disk"
            self.history.append(host.device.write(512))

    def collect(self) -> None:
        """Delete what nobody needs, without any grace."""
        clock = itertools.count()
        for _ in range(3):
            Collector(self.repository, "x", 0.0, clock=lambda: float(next(clock))).collect()

    def served(self) -> SteppedHost | None:
        """Return the host that serves; there are never two."""
        served = [host for host in self.hosts.values() if host.is_served]
        assert len(served) <= 1, "two owners"
        return served[0] if served else None

    def check(self) -> None:
        """Close the volume wherever it is, and find everything in the origin."""
        for host in self.hosts.values():
            host.step()
            host.volumes.closing.close(VOLUME, force=True)
        self.collect()
        record = self.store.get(VOLUME).record
        assert record.owner is None
        assert words_of(self.origin, record.disk) == self.history
        # And the next owner finds it, too.
        self.store.allow_host(VOLUME, "h1")
        host = self.hosts["h1"]
        host.volumes.opening.open(VOLUME, "owner")
        assert host.device is not None
        assert host.device.words == self.history
        host.volumes.closing.close(VOLUME, force=False)


Change = Callable[[Cloud], None]


def opening(cloud: Cloud) -> None:
    h1 = cloud.hosts["h1"]
    h1.attempt(lambda: h1.volumes.opening.open(VOLUME, "owner"))


def closing(cloud: Cloud) -> None:
    h1 = cloud.hosts["h1"]
    h1.attempt(lambda: h1.volumes.closing.close(VOLUME, force=True))


def pushing(cloud: Cloud) -> None:
    h1 = cloud.hosts["h1"]
    h1.attempt(lambda: h1.volumes.pushes.push(VOLUME))


def folding(cloud: Cloud) -> None:
    h1 = cloud.hosts["h1"]
    h1.attempt(lambda: h1.volumes.folds.fold(VOLUME))


def folding_beside_writes(cloud: Cloud) -> None:
    h1 = cloud.hosts["h1"]
    assert h1.device is not None
    h1.device.on_fold = lambda: cloud.write(h1)
    folding(cloud)


def handing_over(cloud: Cloud) -> None:
    """The guest's first request at the destination, which h1 sees in the record."""
    cloud.hosts["h1"].step()


def begin_migration(cloud: Cloud) -> None:
    """Have h2 be the standby, and want the volume."""
    h2 = cloud.hosts["h2"]
    cloud.store.begin_standby(VOLUME, "h2")
    h2.volumes.opening.open(VOLUME, "standby")
    assert h2.device is not None
    h2.volumes.migrations.ask_for(VOLUME, cloud.store.get(VOLUME).record)


def go_on(cloud: Cloud) -> None:
    """Have whoever waits be served, now that the origin answers."""
    h1, h2 = cloud.hosts["h1"], cloud.hosts["h2"]
    for host in (h1, h2):
        host.step()
    cloud.served()
    if h2.is_standby:
        h2.fetch(h1)
        cloud.write(h2)
        if h1.is_standby:
            h1.fetch(h2)
            cloud.write(h1)
    elif cloud.served() is None:
        h1.volumes.opening.open(VOLUME, "owner")
    cloud.write(h1)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PATIENCE", 0.0)


def clouds(directory: pathlib.Path) -> Iterator[tuple[int, Cloud]]:
    """Yield a fresh cloud for each call whose answer may be lost."""
    for number in range(1, CALLS_MAX):
        yield number, Cloud(directory, number)
    pytest.fail("there is always one call more")


def prepared(cloud: Cloud, change: Change) -> None:
    """Have h1 serve a volume with a history, of which something is not pushed."""
    h1 = cloud.hosts["h1"]
    if change is opening:
        h1.volumes.opening.open(VOLUME, "owner")
        cloud.write(h1)
        h1.volumes.closing.close(VOLUME, force=False)
        return
    h1.volumes.opening.open(VOLUME, "owner")
    for _ in range(3):
        cloud.write(h1)
        h1.volumes.pushes.push(VOLUME)
    cloud.write(h1)
    if change is handing_over:
        begin_migration(cloud)


CHANGES = {
    change.__name__: change
    for change in (opening, closing, pushing, folding, folding_beside_writes, handing_over)
}


def run(directory: pathlib.Path, change: Change, loss: Loss) -> None:
    """Lose the answer of each call of a change in turn; raise AssertionError when that harms."""
    for number, cloud in clouds(directory):
        prepared(cloud, change)
        h1 = cloud.hosts["h1"]
        h1.origin.arm(number, loss)
        change(cloud)
        # The guest goes on where it is served, whether the origin answers or not.
        h1.step()
        cloud.served()
        cloud.write(h1)
        was_lost = h1.origin.disarm()
        cloud.collect()
        for _ in range(2):
            go_on(cloud)
            if change is handing_over:
                assert h1.is_served or h1.is_standby, "the guest at the source gets EIO"
            cloud.collect()
        cloud.check()
        if not was_lost:
            break


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("change", CHANGES)
def test_everything_that_was_acknowledged_is_in_the_volume(
    path: pathlib.Path, change: str, loss: Loss
) -> None:
    run(path, CHANGES[change], loss)


# Broken variants


def nothing(*_: object, **__: object) -> None:
    pass


def never_doubtful(self: VolumeFiles, volume: str) -> bool:
    return False


def keep_manifest_only(
    self: VolumeFolds, local: LocalVolume, record: object, folded: Mapping[str, Any]
) -> None:
    kept = dataclasses.replace(self._files.require(local.volume), manifest=folded["manifest"])
    self._files.keep_manifest(kept, folded["content"])


BROKEN_VARIANTS: dict[str, tuple[str, Any]] = {
    "a release without an answer is forgotten in a kill": (
        "closing",
        mock.patch.object(VolumeFiles, "is_doubtful", never_doubtful),
    ),
    "a hand-over is not noted before the release": (
        "handing_over",
        mock.patch.object(VolumeFiles, "note_standby", nothing),
    ),
    "slots are kept after the fold is installed": (
        "folding",
        mock.patch.object(VolumeFolds, "_prepare", keep_manifest_only),
    ),
}


@pytest.mark.parametrize("variant", BROKEN_VARIANTS)
def test_broken_variants_are_found_out(path: pathlib.Path, variant: str) -> None:
    change, patch = BROKEN_VARIANTS[variant]
    with patch, pytest.raises((AssertionError, exception.AcstorError)):
        run(path, CHANGES[change], Loss.KILLED_AND_AWAY)
