"""The data plane is killed under readers that compare every byte."""

import random

import pytest

from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(600)]

CHUNK = 64 << 10
KILLS = 20


def test_dataplane_killed_twenty_times_gives_no_error(cloud: Cloud) -> None:
    """No read fails, none returns a wrong byte, while some come from the origin."""
    host = cloud.add_host()
    image = cloud.register(64 * MIB)
    cloud.wait_ready(image)
    rng = random.Random(20)
    readers = [
        CheckedReader(host.file(image), image.content, seed=seed, direct=seed % 2 == 0)
        for seed in range(4)
    ]
    for reader in readers:
        reader.start()
    try:
        for _ in range(KILLS):
            killed = host.dataplane_pid()
            readers[rng.randrange(len(readers))].wait_reads(rng.randrange(1, 60))
            host.kill_dataplane()
            assert killed is not None
            host.wait_restarted(killed)
        for reader in readers:
            reader.wait_reads(20)
    finally:
        for reader in readers:
            reader.stop()
    assert [error for reader in readers for error in reader.errors] == []


def test_dataplane_upgrade_under_readers_gives_no_error(cloud: Cloud) -> None:
    """A planned restart is the same path as a crash."""
    host = cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    with CheckedReader(host.file(image), image.content, seed=1) as reader:
        reader.wait_reads(50)
        killed = host.dataplane_pid()
        assert killed is not None
        assert host.command("host", "restart-dataplane").returncode == 0
        host.wait_restarted(killed)
        reader.wait_reads(50)
    assert reader.errors == []
    status = host.status()
    assert status is not None
    assert status["fuse"]["taken_over"]


def test_dataplane_killed_keeps_its_chunks(cloud: Cloud) -> None:
    """A warm restart serves from the chunk store; the origin is not asked again."""
    host = cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    assert host.file(image).read_bytes() == image.content
    killed = host.dataplane_pid()
    assert killed is not None
    # What was read is kept a moment later.
    chunks = {image.content[at : at + CHUNK] for at in range(0, 16 * MIB, CHUNK)} - {bytes(CHUNK)}
    wait_for("all is kept", lambda: host.metric("acstor_store_inserted") == len(chunks))
    host.kill_dataplane()
    host.wait_restarted(killed)
    with CheckedReader(host.file(image), image.content, seed=2) as reader:
        reader.wait_reads(300)
    assert reader.errors == []
    assert host.metric("acstor_store_recovered") > 0
    status = host.status()
    assert status is not None
    # A busy disk that gives something too late is not asked for a while: what is read ahead then
    # comes from elsewhere, too.
    late = host.metric("acstor_store_reads", outcome="late")
    late += host.metric("acstor_store_reads", outcome="skipped")
    assert late or status["tiers"]["origin"]["chunks"] <= 2
