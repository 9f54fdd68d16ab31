"""The host loses its power, with everything that its log's disk had not synced.

Nova's part of a boot follows: it disconnects each volume by force and connects it again.
"""

import dataclasses
import pathlib
import random
from collections.abc import Iterator

import pytest

from acstor.repository.volumes.durability import Durability, DurabilityClass
from testbed.fixtures.host_volumes import Volumes, content, nova_calls, open_volume, qemu_io
from testbed.fixtures.hosts import MIB, Cloud, cloud_in
from testbed.fixtures.log_disk import LogDisk

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 32 * MIB
DURABILITY = {
    "write-back": Durability(DurabilityClass.WRITE_BACK, period_s=3600.0),
    "none": Durability(DurabilityClass.NONE),
}


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    with cloud_in(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[LogDisk]:
    disk = LogDisk(tmp_path, 512 * MIB)
    disk.mount()
    yield disk
    disk.unmount()


@pytest.mark.parametrize("name", DURABILITY)
def test_what_was_flushed_outlasts_a_lost_power_and_novas_forced_disconnect(
    disk: LogDisk, cloud: Cloud, tmp_path: pathlib.Path, name: str
) -> None:
    control = Volumes(cloud)
    host = cloud.add_host(agent=False, volumes={"directory": disk.path})
    try:
        volume = control.create(SIZE, host, durability=DURABILITY[name])
        opened = open_volume(host, volume)
        expected = bytearray(SIZE)
        rng = random.Random(11)
        for cut in range(1, 4):
            for _ in range(20):
                start = rng.randrange(0, SIZE - 65536, 4096)
                length = rng.choice([4096, 8192, 65536])
                result = qemu_io(opened, f"write -P {cut} {start} {length}", "flush")
                assert result.returncode == 0, result.stderr
                expected[start : start + length] = bytes([cut]) * length
            disk.lose_power()
            host.vanish()
            disk.unmount()
            disk.mount()
            host.start_dataplane()
            nova = nova_calls(host)
            nova.close(volume, force=True)
            # Another attachment, of another secret.
            opened = dataclasses.asdict(nova.open(volume))
            assert content(opened, tmp_path / f"cut-{cut}") == expected
        assert host.ask("volume.list_aside") == []
    finally:
        host.stop()
