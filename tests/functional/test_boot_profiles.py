"""A boot on one host as the profile on another: real data planes, agents, FUSE and origin."""

import concurrent.futures
import mmap
import multiprocessing
import os
from collections.abc import Sequence
from typing import Any

import pytest

from acstor.control import bitmap, rank_list
from acstor.control.client import AdminClient
from acstor.nbd_connection import NbdConnection
from acstor.origin.posix import PosixOrigin
from acstor.repository.images import boot_profile
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import Volumes, open_volume
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

CHUNK = 64 << 10
CHUNKS = 16 * MIB // CHUNK
ORDER = (0, 255, *range(130, 90, -1))
OTHER = (0, *range(20, 60), 255)


def add_host(cloud: Cloud, interval: float) -> Host:
    """Start a host whose agent reports boots every ``interval`` seconds."""
    host = cloud.add_host(agent=False)
    with host.config.open("a") as config:
        config.write(f"\n[agent]\nworking_set_interval = {interval}\n")
    host.start_agent()
    return host


def boot(path: str, order: Sequence[int]) -> bytes:
    """Read as a guest does that boots past the page cache: 4 KiB of each chunk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 4096) as buffer:
            found = []
            for chunk in order:
                assert os.preadv(descriptor, [buffer], chunk * CHUNK) == 4096
                found.append(buffer[:])
            return b"".join(found)
    finally:
        os.close(descriptor)


def content(image: Image, order: Sequence[int]) -> bytes:
    """Return what such a boot reads."""
    return b"".join(image.content[chunk * CHUNK : chunk * CHUNK + 4096] for chunk in order)


def kept_profile(host: Host, image: Image) -> bytes:
    """Return the orders that the data plane was given and keeps; nothing where there are none."""
    path = host.path / "dataplane" / "images" / f"{image.id}.boot-profile"
    return path.read_bytes() if path.exists() else b""


def recorded(host: Host) -> list[dict[str, Any]]:
    """Return the boots that the data plane still tells."""
    client = AdminClient(str(host.path / "dataplane.sock"))
    told: list[dict[str, Any]] = client.call("bootprofile.recorded", acknowledged=0)
    return told


def test_boot_on_one_host_is_the_profile_of_another(cloud: Cloud) -> None:
    first, second = (add_host(cloud, 0.5) for _ in range(2))
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    assert boot(str(first.file(image)), ORDER) == content(image, ORDER)
    origin = PosixOrigin(str(cloud.origin))

    def learnt() -> boot_profile.BootProfile | None:
        found = boot_profile.read(origin, image.id)
        return found if found is not None and found.used else None

    profile = wait_for("the boot is in the origin", learnt)
    assert [kind.order() for kind in profile.used] == [ORDER]
    given = wait_for("the other host has it", lambda: kept_profile(second, image))
    assert rank_list.decode(given, CHUNKS) == (ORDER,)
    wait_for("and so has the first", lambda: kept_profile(first, image) == given)
    wait_for("the boot is acknowledged", lambda: recorded(first) == [])
    pid = wait_for("a data plane", second.dataplane_pid)
    second.kill_dataplane()
    second.wait_restarted(pid)
    assert kept_profile(second, image) == given, "kept over the restart"


def test_guests_that_boot_at_once_have_an_order_each(cloud: Cloud) -> None:
    host = add_host(cloud, 3600)
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    processes = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, processes) as guests:
        path = str(host.file(image))
        booted = [guests.submit(boot, path, order) for order in (ORDER, OTHER)]
        for guest, order in zip(booted, (ORDER, OTHER), strict=True):
            assert guest.result(60) == content(image, order)
    told = wait_for("both are told", lambda: found if len(found := recorded(host)) == 2 else None)
    orders = [
        rank_list.decode(bitmap.inflate(one["order"], rank_list.len_max(1)), CHUNKS)[0]
        for one in told
    ]
    assert sorted(orders) == sorted((ORDER, OTHER))


def test_boot_through_the_page_cache_is_recorded_once(cloud: Cloud) -> None:
    host = add_host(cloud, 3600)
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)

    def read(order: Sequence[int]) -> None:
        with open(host.file(image), "rb", buffering=0) as source:
            os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for chunk in order:
                os.pread(source.fileno(), 4096, chunk * CHUNK)

    read((0, 255))  # Nova's inspection
    read(OTHER[1:-1])
    (told,) = wait_for("it is told", lambda: recorded(host))
    (order,) = rank_list.decode(bitmap.inflate(told["order"], rank_list.len_max(1)), CHUNKS)
    assert order == OTHER[1:-1], "what the inspection read is in the page cache"
    read(ORDER[2:])
    assert recorded(host) == [told]


def test_boot_of_a_volume_is_recorded_as_one_of_its_image(cloud: Cloud) -> None:
    host = add_host(cloud, 3600)
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    volume = Volumes(cloud).create(32 * MIB, host, image_id=image.id)
    opened = open_volume(host, volume)
    buffer = bytearray(4096)
    guest = NbdConnection(opened["socket"], opened["export"], 30)
    for chunk in ORDER:
        guest.read_into(chunk * CHUNK, memoryview(buffer))
        assert bytes(buffer) == content(image, [chunk])
    guest.close()
    (told,) = wait_for("the boot is told", lambda: recorded(host))
    assert told["image"] == image.id
    (order,) = rank_list.decode(bitmap.inflate(told["order"], rank_list.len_max(1)), CHUNKS)
    assert order == ORDER
