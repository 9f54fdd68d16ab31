"""The host loses power, and the disk of its logs forgets at random what no flush has covered.

A real file system replays its journal on what is left, a real data plane resumes its log there, and
every sector of the volume is compared. One of the runs again: ``-k 'xfs-none-long' --extended``.
"""

import dataclasses
import pathlib
import random
from collections.abc import Iterator

import pytest

from acstor.repository.volumes.durability import Durability, DurabilityClass
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import Volumes, content, nova_calls, open_volume, state
from testbed.fixtures.hosts import MIB, Cloud, Host, cloud_in
from testbed.fixtures.lossy_disk import LossyDisk
from testbed.fixtures.stamped_writers import StampedWriters

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(1800)]

SIZE = 12 * MIB
WRITERS = 3
DISK_SIZE = 512 * MIB
LOG = {"segment_bytes": "2MiB", "quota_bytes": "64MiB", "fold_bytes": "8MiB", "fold_spread": 0}
"""Small, so that segments are filled, reclaimed and written again between two cuts."""
DURABILITY = {
    "through": Durability(DurabilityClass.WRITE_THROUGH),
    "back": Durability(DurabilityClass.WRITE_BACK, period_s=1.0),
    "kept": Durability(DurabilityClass.WRITE_BACK, period_s=3600.0),
    "none": Durability(DurabilityClass.NONE),
}
QUICK, LONG = 2, 50
"""Cuts in one run."""


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    with cloud_in(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def disk(tmp_path: pathlib.Path, kind: str) -> Iterator[LossyDisk]:
    disk = LossyDisk(tmp_path, DISK_SIZE, kind)
    disk.mount()
    yield disk
    disk.discard()


def runs() -> list[object]:
    """Return runs for the gate, each class once, and fifty cuts of each class and file system."""
    quick = [("ext4", "back"), ("xfs", "kept"), ("ext4", "none"), ("xfs", "through")]
    return [
        *(pytest.param(kind, name, QUICK, id=f"{kind}-{name}") for kind, name in quick),
        *(
            pytest.param(kind, name, LONG, id=f"{kind}-{name}-long", marks=pytest.mark.extended)
            for kind in ("ext4", "xfs")
            for name in DURABILITY
        ),
    ]


@pytest.mark.parametrize(("kind", "name", "cuts"), runs())
def test_a_disk_that_forgets_what_was_not_flushed_costs_nothing_that_was(
    disk: LossyDisk, cloud: Cloud, tmp_path: pathlib.Path, name: str, cuts: int
) -> None:
    """The chunks of the volume's image, which the host keeps on the same disk, are right too."""
    rng = random.Random(cuts)
    control = Volumes(cloud)
    on_disk = {"volumes": {"directory": disk.path / "volumes", **LOG}}
    host = cloud.add_host(agent=False, store={"path": disk.path / "store"}, **on_disk)
    image = cloud.register(SIZE)
    volume = control.create(SIZE, host, image_id=image.id, durability=DURABILITY[name])
    writers = StampedWriters(image.content, WRITERS, seed=cuts, is_through=name == "through")
    opened = open_volume(host, volume)
    lost = undone = 0
    try:
        for _ in range(cuts):
            writers.start(opened)
            writers.wait_writes(rng.randrange(50, 500))
            lost += power_cut(disk, host, writers, rng)
            if rng.random() < 0.25:
                # Again, while it comes back.
                host.start_dataplane()
                lost += power_cut(disk, host, writers, rng)
            host.start_dataplane()
            if rng.random() < 0.5:
                nova = nova_calls(host)
                nova.close(volume, force=True)
                # Another attachment, of another secret.
                opened = dataclasses.asdict(nova.open(volume))
            wait_for("it is resumed", lambda: state(host, volume) == "serving")
            undone += writers.check(content(opened, tmp_path / "content"))
        assert host.ask("volume.list_aside") == []
    finally:
        host.stop()
    print(
        f"{cuts} cuts: {writers.writes} writes, {writers.flushes} flushes; the disk lost {lost} "
        f"blocks, the volume {undone} writes"
    )


def power_cut(disk: LossyDisk, host: Host, writers: StampedWriters, rng: random.Random) -> int:
    """Switch a host off and its disk on again; return how many blocks the disk has lost."""
    writers.cut()
    disk.stop(rng)
    host.vanish()
    loss = disk.lose_power(rng)
    writers.join()
    disk.mount()
    return loss.lost
