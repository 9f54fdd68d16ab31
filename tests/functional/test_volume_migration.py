"""A volume follows its guest from one real data plane to another, and loses nothing."""

import pathlib
from collections.abc import Iterator

import pytest

from acstor.repository.volumes.durability import Durability, DurabilityClass
from testbed.fixtures import host_volumes as volumes
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import (
    CheckedWriter,
    Volumes,
    call,
    content,
    open_volume,
    qemu_io,
)
from testbed.fixtures.hosts import MIB, Cloud, cloud_in

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 8 * MIB
NEVER = Durability(DurabilityClass.WRITE_BACK, period_s=3600.0)
"""Nothing is pushed but for the hand-over."""


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    with cloud_in(tmp_path) as cloud:
        yield cloud


def test_guest_goes_on_at_the_destination(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    source, destination = cloud.add_host(agent=False), cloud.add_host(agent=False)
    control = Volumes(cloud)
    volume = control.create(SIZE, source, durability=NEVER)
    opened = open_volume(source, volume)
    writer = CheckedWriter(opened, first=0, length=SIZE, seed=1)
    writer.wait_requests(50)
    control.store.begin_standby(volume, destination.name)
    standby = call(destination, "open", volume, role="standby")
    assert standby["state"] == "standby"
    assert volumes.size(standby) == SIZE, "seen without a request"
    assert volumes.state(source, volume) == "serving"
    writer.wait_requests(50)
    writer.stop()  # the guest is paused at the source
    assert writer.problems == []

    assert content(standby, tmp_path / "moved") == writer.model
    assert volumes.state(destination, volume) == "serving"
    assert volumes.state(source, volume) == "standby"
    call(source, "close", volume, force=True)
    control.store.disallow_host(volume, source.name)
    written = qemu_io(standby, "write -P 7 0 64k", "read -P 7 0 64k")
    assert written.returncode == 0, written.stdout
    assert control.store.get(volume).record.owner == destination.name


def test_both_ends_may_ask_while_the_guest_writes(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    """As QEMU does, which reads the first sector when it starts at the destination."""
    source, destination = cloud.add_host(agent=False), cloud.add_host(agent=False)
    control = Volumes(cloud)
    volume = control.create(SIZE, source, durability=NEVER)
    writer = CheckedWriter(open_volume(source, volume), first=0, length=SIZE // 2, seed=2)
    try:
        writer.wait_requests(20)
        control.store.begin_standby(volume, destination.name)
        standby = call(destination, "open", volume, role="standby")
        for pattern in (1, 2):
            done = qemu_io(
                standby,
                "read 0 512",
                f"write -P {pattern} {SIZE // 2} 4k",
                f"read -P {pattern} {SIZE // 2} 4k",
            )
            assert done.returncode == 0, done.stdout
            writer.wait_requests(20)
    finally:
        writer.stop()
    assert writer.problems == []
    wait_for("the source has it", lambda: volumes.state(source, volume) == "serving")
    expected = bytes(writer.model) + b"\2" * 4096 + bytes(SIZE // 2 - 4096)
    assert content(standby, tmp_path / "content") == expected
    assert control.store.get(volume).record.epoch >= 5


def test_first_sectors_are_read_at_the_destination_as_they_are_at_the_source(cloud: Cloud) -> None:
    """QEMU's look at a disk when it starts takes the volume from nobody, and is never stale."""
    source, destination = cloud.add_host(agent=False), cloud.add_host(agent=False)
    control = Volumes(cloud)
    volume = control.create(SIZE, source, durability=NEVER)
    opened = open_volume(source, volume)
    control.store.begin_standby(volume, destination.name)
    standby = call(destination, "open", volume, role="standby")
    for pattern in (0, 1, 2):
        if pattern:
            assert qemu_io(opened, f"write -P {pattern} 0 64k").returncode == 0
        for offset in (0, 3584):
            found = qemu_io(standby, f"read -P {pattern} {offset} 512")
            assert found.returncode == 0, found.stdout
            assert "Pattern verification failed" not in found.stdout
    record = control.store.get(volume).record
    assert (record.owner, record.epoch) == (source.name, 1)
    assert volumes.state(source, volume) == "serving"
    assert volumes.state(destination, volume) == "standby"
    # What lies behind them is the owner's to read.
    assert qemu_io(standby, "read -P 2 4096 512").returncode == 0
    wait_for("it is here", lambda: volumes.state(destination, volume) == "serving")
