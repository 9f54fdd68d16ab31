"""Volumes with real data planes and QEMU's and libnbd's clients."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.control.client import AdminClient
from acstor.repository.reading.disk_reader import DataRun, DiskReader
from acstor.repository.reading.opened_disk import open_disk
from acstor.repository.volumes.durability import Durability, DurabilityClass, Region
from testbed.fixtures import host_volumes as volumes
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import Volumes, call, content, open_volume, qemu_io
from testbed.fixtures.hosts import MIB, Cloud, Host, cloud_in

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 32 * MIB
NEVER = Durability(DurabilityClass.WRITE_BACK, period_s=3600.0)


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    with cloud_in(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def control(cloud: Cloud) -> Volumes:
    return Volumes(cloud)


def add_host(cloud: Cloud) -> Host:
    return cloud.add_host(agent=False)


def write(opened: dict[str, object], *commands: str) -> None:
    result = qemu_io(opened, *commands)
    assert result.returncode == 0, result.stdout + result.stderr


def read_without_a_host(control: Volumes, volume: str) -> DiskReader:
    """Return the disk as it is in the origin: a manifest, and the logs over it."""
    record = control.store.get(volume).record
    assert record.logs
    return open_disk(control.repository, record.disk, record.size_bytes)


def test_volume_keeps_what_was_written_from_host_to_host(
    cloud: Cloud, control: Volumes, tmp_path: pathlib.Path
) -> None:
    first, second = add_host(cloud), add_host(cloud)
    volume = control.create(SIZE, first)
    opened = open_volume(first, volume)
    assert volumes.size(opened) == SIZE
    write(opened, "write -P 1 0 1M", "write -P 2 5M 512", "discard 512k 4k", "flush")
    expected = bytearray(SIZE)
    expected[:MIB] = b"\1" * MIB
    expected[5 * MIB : 5 * MIB + 512] = b"\2" * 512
    expected[512 << 10 : 516 << 10] = bytes(4096)
    assert content(opened, tmp_path / "here") == expected

    call(first, "close", volume, force=False)
    record = control.store.get(volume).record
    assert record.owner is None
    assert record.logs
    assert not pathlib.Path(opened["socket"]).exists()

    control.move(volume, first, second)
    there = open_volume(second, volume)
    assert there["epoch"] == 2
    assert content(there, tmp_path / "there") == expected
    write(there, "write -P 3 6M 64k")
    expected[6 * MIB : 6 * MIB + 65536] = b"\3" * 65536
    call(second, "close", volume, force=False)
    control.move(volume, second, first)
    assert content(open_volume(first, volume), tmp_path / "back") == expected


def test_volume_of_an_image_is_the_image_until_it_is_written(
    cloud: Cloud, control: Volumes, tmp_path: pathlib.Path
) -> None:
    first, second = add_host(cloud), add_host(cloud)
    image = cloud.register(8 * MIB)
    volume = control.create(SIZE, first, image_id=image.id)
    opened = open_volume(first, volume)
    expected = bytearray(image.content.ljust(SIZE, b"\0"))
    assert content(opened, tmp_path / "fresh") == expected
    write(opened, "write -P 7 4k 4k", "write -z 1M 1M", "write -P 8 20M 64k")
    expected[4096:8192] = b"\7" * 4096
    expected[MIB : 2 * MIB] = bytes(MIB)
    expected[20 * MIB : 20 * MIB + 65536] = b"\10" * 65536
    assert content(opened, tmp_path / "written") == expected
    call(first, "close", volume, force=False)
    with contextlib.closing(read_without_a_host(control, volume)) as disk:
        assert disk.read(0, SIZE // 2) + disk.read(SIZE // 2, SIZE // 2) == expected
        # What was zeroed of the image has none, what was written past its end has.
        runs = list(disk.data_runs())
        assert not any(run.start < 2 * MIB and run.end > MIB for run in runs)
        assert DataRun(20 * MIB, 20 * MIB + 65536) in runs
    control.move(volume, first, second)
    assert content(open_volume(second, volume), tmp_path / "there") == expected


def test_damaged_manifest_below_a_volume_is_fetched_again(
    cloud: Cloud, control: Volumes, tmp_path: pathlib.Path
) -> None:
    """Reads that need a damaged page have it from the origin, and it is written to the file."""
    host = add_host(cloud)
    image = cloud.register(8 * MIB)
    volume = control.create(SIZE, host, image_id=image.id)
    opened = open_volume(host, volume)
    (path,) = host.path.rglob(f"{volume}/*.manifest")
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([whole[-1] ^ 1]))
    assert qemu_io(opened, "read 7M 4k").returncode == 0
    assert content(opened, tmp_path / "content") == image.content.ljust(SIZE, b"\0")
    wait_for("the file is whole", lambda: path.read_bytes() == whole)


@pytest.mark.parametrize("scope", [None, "a project"])
def test_folded_volume_is_the_same(
    cloud: Cloud, control: Volumes, tmp_path: pathlib.Path, scope: str | None
) -> None:
    first, second = add_host(cloud), add_host(cloud)
    image = cloud.register(8 * MIB)
    volume = control.create(SIZE, first, image_id=image.id)
    control.store.set_dedup_scope(volume, scope)
    opened = open_volume(first, volume)
    write(opened, "write -P 7 4k 4k", "write -P 9 16M 2M")
    expected = bytearray(image.content.ljust(SIZE, b"\0"))
    expected[4096:8192] = b"\7" * 4096
    expected[16 * MIB : 18 * MIB] = b"\11" * (2 * MIB)
    call(first, "push", volume)
    before = control.store.get(volume).record.manifest
    assert call(first, "fold", volume)["is_folded"]
    record = control.store.get(volume).record
    assert record.manifest not in (None, before)
    assert record.logs == ()
    assert control.scoped_chunks(volume) == ({0, *range(256, 288)} if scope else set())
    assert content(opened, tmp_path / "folded") == expected
    write(opened, "write -P 5 0 512")
    expected[:512] = b"\5" * 512
    killed = first.dataplane_pid()
    assert killed is not None
    first.kill_dataplane()
    first.wait_restarted(killed)
    assert content(opened, tmp_path / "restarted") == expected
    call(first, "close", volume, force=False)
    control.move(volume, first, second)
    assert content(open_volume(second, volume), tmp_path / "there") == expected


def test_second_host_is_refused_while_the_first_may_attach(cloud: Cloud, control: Volumes) -> None:
    first, second = add_host(cloud), add_host(cloud)
    volume = control.create(SIZE, first)
    open_volume(first, volume)
    with pytest.raises(exception.FencedError, match="may not attach"):
        open_volume(second, volume)
    control.store.begin_standby(volume, second.name)
    with pytest.raises(exception.FencedError, match=f"in use on host {first.name}"):
        open_volume(second, volume)
    assert volumes.state(first, volume) == "serving"


def test_replaced_owner_gets_errors_and_writes_nothing_more(
    cloud: Cloud, control: Volumes, tmp_path: pathlib.Path
) -> None:
    first, second = add_host(cloud), add_host(cloud)
    volume = control.create(SIZE, first, durability=NEVER)
    opened = open_volume(first, volume)
    write(opened, "write -P 1 0 1M", "flush")
    call(first, "push", volume)
    write(opened, "write -P 2 0 64k", "flush")  # acknowledged, and never pushed

    control.move(volume, first, second)
    there = open_volume(second, volume)
    expected = bytearray(SIZE)
    expected[:MIB] = b"\1" * MIB
    assert content(there, tmp_path / "taken") == expected
    write(there, "write -P 3 2M 64k")
    expected[2 * MIB : 2 * MIB + 65536] = b"\3" * 65536

    with pytest.raises(exception.FencedError):
        call(first, "push", volume)
    wait_for("the first host notices", lambda: volumes.state(first, volume) == "fenced")
    refused = qemu_io(opened, "write -P 4 4M 4k", "read 0 4k")
    assert "Input/output error" in refused.stdout + refused.stderr
    call(first, "close", volume, force=True)
    (aside,) = first.ask("volume.list_aside")
    rescued = tmp_path / "rescued.raw"
    admin = AdminClient(str(first.path / "dataplane.sock"))
    admin.call("volume.export_aside", call_timeout=60, name=aside["name"], path=str(rescued))
    seen_here = bytearray(SIZE)
    seen_here[:MIB] = b"\2" * 65536 + b"\1" * (MIB - 65536)
    assert rescued.read_bytes() == seen_here, "what this host had acknowledged"
    assert first.ask("volume.list") == []
    call(second, "close", volume, force=False)
    control.move(volume, second, first)
    assert content(open_volume(first, volume), tmp_path / "after") == expected


def test_owner_replaced_while_it_was_down_comes_back_fenced(cloud: Cloud, control: Volumes) -> None:
    first, second = add_host(cloud), add_host(cloud)
    volume = control.create(SIZE, first, durability=NEVER)
    opened = open_volume(first, volume)
    write(opened, "write -P 2 0 64k", "flush")
    first.vanish()
    control.move(volume, first, second)
    write(open_volume(second, volume), "read -P 0 0 64k", "write -P 3 0 4k")
    first.start_dataplane()
    wait_for("the first host notices", lambda: volumes.state(first, volume) == "fenced")
    refused = qemu_io(opened, "read 0 4k")
    assert "Input/output error" in refused.stdout + refused.stderr
    call(first, "close", volume, force=False)
    assert volumes.state(second, volume) == "serving"


def test_grown_volume_is_seen_by_who_reconnects(cloud: Cloud, control: Volumes) -> None:
    host = add_host(cloud)
    volume = control.create(SIZE, host)
    opened = open_volume(host, volume)
    write(opened, "write -P 1 0 4k")
    call(host, "resize", volume, size_bytes=2 * SIZE)
    assert volumes.size(opened) == 2 * SIZE
    write(opened, f"write -P 2 {2 * SIZE - 4096} 4k", "read -P 1 0 4k")


def test_volume_in_use_is_not_closed_without_force(cloud: Cloud, control: Volumes) -> None:
    host = add_host(cloud)
    volume = control.create(SIZE, host)
    opened = open_volume(host, volume)
    writer = volumes.CheckedWriter(opened, first=0, length=MIB, seed=1)
    try:
        writer.wait_requests(10)
        assert call(host, "status", volume)["clients"] == 1
        with pytest.raises(exception.InvalidError, match="in use"):
            call(host, "close", volume, force=False)
        writer.wait_requests(10)
    finally:
        writer.stop()
    assert writer.problems == []
    wait_for("the client is gone", lambda: call(host, "status", volume)["clients"] == 0)
    call(host, "close", volume, force=False)


def test_limits_hold_requests_back(cloud: Cloud, control: Volumes) -> None:
    host = add_host(cloud)
    volume = control.create(SIZE, host)
    opened = open_volume(host, volume)
    control.store.describe(volume, metadata={"bytes_per_s": str(4 * MIB)})
    call(host, "set_limits", volume, iops=0, bytes_per_s=4 * MIB)

    def is_held_back() -> bool:
        # A client that stands still between any two of them is not.
        write(opened, *(f"write -P 1 {number}M 1M" for number in range(8)))
        return host.metric("acstor_nbd_throttled", volume=volume) > 0

    wait_for("requests are held back", is_held_back)
    assert host.metric("acstor_nbd_requests", volume=volume, command="write") >= 8
    assert host.metric("acstor_volume_healthy", volume=volume) == 1


def test_volume_outlives_an_origin_that_is_away(
    cloud: Cloud, control: Volumes, tmp_path: pathlib.Path
) -> None:
    host = add_host(cloud)
    volume = control.create(SIZE, host, durability=NEVER)
    opened = open_volume(host, volume)
    write(opened, "write -P 1 0 1M", "flush")
    away = cloud.origin.with_name("away")
    cloud.origin.rename(away)
    try:
        killed = host.dataplane_pid()
        assert killed is not None
        host.kill_dataplane()
        host.wait_restarted(killed)
        write(opened, "read -P 1 0 1M", "write -P 2 0 4k", "flush")
    finally:
        away.rename(cloud.origin)
    expected = bytearray(SIZE)
    expected[:MIB] = b"\1" * MIB
    expected[:4096] = b"\2" * 4096
    wait_for("it is served", lambda: volumes.state(host, volume) == "serving")
    call(host, "close", volume, force=False)
    assert content(open_volume(host, volume), tmp_path / "after") == expected


def test_what_never_travels_outlasts_stop_and_start(
    cloud: Cloud, control: Volumes, tmp_path: pathlib.Path
) -> None:
    """As Nova does at a stop and a start; a region of class none beside one that is pushed."""
    first, second = add_host(cloud), add_host(cloud)
    scratch = Region(DurabilityClass.NONE, first=16 * MIB, last=SIZE)
    durability = Durability(DurabilityClass.WRITE_BACK, period_s=3600.0, regions=(scratch,))
    volume = control.create(SIZE, first, durability=durability)
    expected = bytearray(SIZE)
    for turn in (1, 2, 3):
        opened = open_volume(first, volume)
        assert content(opened, tmp_path / f"turn{turn}") == expected
        for start in (turn * MIB, (16 + turn) * MIB):
            write(opened, f"write -P {turn} {start} 64k", "flush")
            expected[start : start + 65536] = bytes([turn]) * 65536
        if turn == 2:
            call(first, "fold", volume)
        call(first, "close", volume, force=True)
    control.move(volume, first, second)
    expected[16 * MIB :] = bytes(SIZE - 16 * MIB)
    assert content(open_volume(second, volume), tmp_path / "there") == expected
    call(second, "close", volume, force=True)
    control.move(volume, second, first)
    assert content(open_volume(first, volume), tmp_path / "back") == expected
