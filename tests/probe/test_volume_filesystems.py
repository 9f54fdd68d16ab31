"""File systems in a real guest on a volume: exercised, killed, moved, cut off from power.

Every test follows from its seed but for the very moments of the kills; ``--extended`` runs more
seeds, and for longer. One of them again: ``-k 'ext4 and seed3' --extended``.
"""

import random

import pytest

from testbed.accelerator import Accelerator
from testbed.fixtures import exerciser_volume as exercise
from testbed.fixtures.exerciser_volume import DISK, MOUNT, exercised, exerciser
from testbed.fixtures.hosts import MIB, Cloud
from testbed.guest.build import GuestImage
from testbed.guest.exerciser import SETTINGS

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(3600)]

SIZE = 400 * MIB
LONGER_SEEDS = range(2, 8)
Guest = tuple[GuestImage, Accelerator]


def runs(quick: int, longer: int) -> list[object]:
    """Return one quick run for the gate, and longer ones of other seeds."""
    return [
        pytest.param(1, quick, id="seed1"),
        *(
            pytest.param(seed, longer, id=f"seed{seed}", marks=pytest.mark.extended)
            for seed in LONGER_SEEDS
        ),
    ]


def kinds(quick: str, other: str) -> list[object]:
    """Return the file system of the quick runs, and the one that only extended ones have."""
    return [quick, pytest.param(other, marks=pytest.mark.extended)]


@pytest.fixture(scope="module")
def guest() -> Guest:
    return exerciser()


@pytest.mark.parametrize(("seed", "operations"), runs(300, 3000))
@pytest.mark.parametrize("kind", kinds("xfs", "ext4"))
def test_file_system_outlives_killed_data_planes_and_a_move(
    cloud: Cloud, guest: Guest, kind: str, seed: int, operations: int
) -> None:
    rng = random.Random(seed)
    with exercised(cloud, guest, SIZE, kind) as volume:
        volume.make()
        volume.mount()
        running = volume.guest.console.start(exercise.exercise_command(seed, operations))
        for _ in range(2 + operations // 1000):
            volume.kill_dataplane(rng)
        volume.guest.console.finish(running, exercise.EXERCISE_TIMEOUT)
        before = volume.digests()
        assert f"seed-{seed}/fsx" in before
        volume.unmount()
        volume.check()
        volume.mount()
        assert volume.digests() == before
        volume.run(f"fstrim {MOUNT}")
        volume.unmount()

        volume.move()
        volume.check()
        volume.mount()
        assert volume.digests() == before
        volume.run(exercise.fsx_command(seed + 1, operations // 4))
        volume.unmount()
        volume.check()


@pytest.mark.extended
@pytest.mark.parametrize(("seed", "operations"), runs(800, 10_000))
def test_disk_without_file_system_holds_what_fsx_wrote(
    cloud: Cloud, guest: Guest, seed: int, operations: int
) -> None:
    """With holes, which the disk discards or zeroes."""
    rng = random.Random(seed)
    with exercised(cloud, guest, 16 * MIB, "ext4") as volume:
        options = f"-N {operations} -S {seed} -f {SETTINGS}/fsx-disk.toml -P /tmp"
        running = volume.guest.console.start(f"fsx {options} $(disk {DISK})")
        volume.kill_dataplane(rng)
        volume.guest.console.finish(running, exercise.EXERCISE_TIMEOUT)
        digest = f"echo 3 >/proc/sys/vm/drop_caches; sha256sum $(disk {DISK}) | cut -c-64"
        before = volume.run(digest)
        volume.move()
        assert volume.run(digest) == before


@pytest.mark.parametrize(("seed", "cuts"), runs(1, 6))
@pytest.mark.parametrize("kind", kinds("ext4", "xfs"))
def test_fsynced_files_outlive_power_cuts(
    cloud: Cloud, guest: Guest, kind: str, seed: int, cuts: int
) -> None:
    """Guest and host go down at once, amidst writes; what fsync said is on the disk is there."""
    rng = random.Random(seed)
    with exercised(cloud, guest, SIZE, kind) as volume:
        volume.make()
        for cut in range(cuts):
            volume.mount()
            work = f"{MOUNT}/cut-{cut}"
            volume.guest.console.start(f"acstor-durable-files write {work} {seed}")
            wanted = f"durable {rng.randrange(20, 120)}"
            volume.guest.console.wait_line(wanted.__eq__, exercise.EXERCISE_TIMEOUT)
            volume.cut_power()
            durable = int(volume.guest.console.lines[-1].split()[1])
            volume.boot()
            volume.mount()
            volume.run(f"acstor-durable-files verify {work} {seed} {durable}")
            volume.unmount()
            volume.check()
