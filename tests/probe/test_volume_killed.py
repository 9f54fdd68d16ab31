"""The data plane is killed under clients of a volume that write and compare."""

import pathlib
import random

import pytest

from testbed.fixtures import host_volumes as volumes
from testbed.fixtures.host_volumes import CheckedWriter, Volumes, call, content, open_volume
from testbed.fixtures.hosts import MIB, Cloud

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 12
PART = 4 * MIB
PARTS = 3


def test_dataplane_killed_under_writers_loses_nothing(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    """No request fails, no byte that was acknowledged is missing: here or on another host."""
    host, other = cloud.add_host(agent=False), cloud.add_host(agent=False)
    control = Volumes(cloud)
    volume = control.create(PARTS * PART, host)
    opened = open_volume(host, volume)
    rng = random.Random(12)
    writers = [
        CheckedWriter(opened, first=part * PART, length=PART, seed=part) for part in range(PARTS)
    ]
    try:
        for writer in writers:
            writer.wait_requests(1)  # whoever never connected does not reconnect
        for _ in range(KILLS):
            killed = host.dataplane_pid()
            writers[rng.randrange(PARTS)].wait_requests(rng.randrange(1, 60))
            host.kill_dataplane()
            assert killed is not None
            host.wait_restarted(killed)
        for writer in writers:
            writer.wait_requests(20)
    finally:
        for writer in writers:
            writer.stop()
    assert [problem for writer in writers for problem in writer.problems] == []
    expected = b"".join(bytes(writer.model) for writer in writers)
    assert content(opened, tmp_path / "here") == expected
    assert control.store.get(volume).record.epoch == 1

    call(host, "close", volume, force=False)
    control.move(volume, host, other)
    assert content(open_volume(other, volume), tmp_path / "there") == expected


def test_upgrade_under_writers_is_not_noticed(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    host = cloud.add_host(agent=False)
    control = Volumes(cloud)
    volume = control.create(PART, host)
    opened = open_volume(host, volume)
    writer = CheckedWriter(opened, first=0, length=PART, seed=1)
    try:
        writer.wait_requests(50)
        killed = host.dataplane_pid()
        assert killed is not None
        assert host.command("host", "restart-dataplane").returncode == 0
        host.wait_restarted(killed)
        writer.wait_requests(50)
    finally:
        writer.stop()
    assert writer.problems == []
    assert content(opened, tmp_path / "after") == writer.model
    assert volumes.state(host, volume) == "serving"
