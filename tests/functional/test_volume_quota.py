"""Local logs of several tenants on one file system: who fills his own fills nobody else's."""

import contextlib
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from acstor.repository.volumes.durability import Durability, DurabilityClass
from testbed.fixtures.host_volumes import Volumes, call, open_volume, qemu_io
from testbed.fixtures.hosts import MIB, cloud_in

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

DISK = 160 * MIB
QUOTA = 64 * MIB
GREEDY = 256 * MIB
MODEST = 24 * MIB
NEVER = Durability(DurabilityClass.WRITE_BACK, period_s=3600.0)


@contextlib.contextmanager
def small_disk(path: pathlib.Path) -> Iterator[None]:
    """Mount a file system of :data:`DISK` bytes."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_tenant_who_fills_his_log_takes_nothing_from_others(tmp_path: pathlib.Path) -> None:
    logs = tmp_path / "logs"
    with small_disk(logs), cloud_in(tmp_path) as cloud:
        options = {"directory": logs, "quota_bytes": QUOTA, "segment_bytes": 4 * MIB}
        host = cloud.add_host(agent=False, volumes=options)
        control = Volumes(cloud)
        greedy_id = control.create(GREEDY, host, durability=NEVER)
        greedy = open_volume(host, greedy_id)
        modest_id = control.create(MODEST, host, durability=NEVER)
        modest = open_volume(host, modest_id)

        # Until there is no more; qemu-io goes on after an error.
        said = qemu_io(greedy, *(f"write -P 1 {at}M 8M" for at in range(0, GREEDY // MIB, 8)))
        assert "No space left on device" in said.stdout + said.stderr
        assert QUOTA / 2 < host.metric("acstor_volume_log_bytes", volume=greedy_id) <= QUOTA

        # All of it, and again: nothing of that is pushed.
        for pattern in (2, 3):
            commands = [f"write -P {pattern} {at}M 1M" for at in range(MODEST // MIB)]
            said = qemu_io(modest, *commands, "flush", f"read -P {pattern} 0 {MODEST}")
            assert said.returncode == 0, said.stdout + said.stderr
            assert "error" not in said.stdout + said.stderr
        assert call(host, "status", modest_id)["state"] == "serving"

        # What the greedy one has goes on, and gives back.
        said = qemu_io(greedy, "read -P 1 0 8M", "discard 0 32M", "write -P 4 0 4M", "flush")
        assert said.returncode == 0, said.stdout + said.stderr
