"""Peers die, stall and lie under a reader that compares every byte."""

import os
import signal

import pytest

from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

READS = {"keep": "never"}
"""Every read of a chunk that a peer owns asks the peer again."""


def two_hosts(cloud: Cloud) -> tuple[Host, Host, Image]:
    """Two hosts with a ring and an image that the second one has read completely."""
    first = cloud.add_host(readpath=READS)
    second = cloud.add_host(readpath=READS)
    image = cloud.register(32 * MIB)
    cloud.wait_ready(image)
    assert second.file(image).read_bytes() == image.content
    return first, second, image


def test_peer_serves_what_it_has(cloud: Cloud) -> None:
    """Chunks that one host has read need not leave the origin again for the other."""
    first, second, image = two_hosts(cloud)
    assert first.file(image).read_bytes() == image.content
    stored = sum(path.stat().st_size for path in (cloud.origin / "packs").rglob("*"))
    read = sum(host.metric("acstor_origin_bytes") for host in (first, second))
    # How much less is a question of clocks, as nobody waits long for a peer: a benchmark's.
    assert 0 < read < 2 * stored
    assert first.metric("acstor_read_chunks", tier="peer") > 0


def test_peer_killed_reads_go_on(cloud: Cloud) -> None:
    """The next candidate or the origin answers."""
    first, second, image = two_hosts(cloud)
    with CheckedReader(first.file(image), image.content, seed=3) as reader:
        reader.wait_reads(100)
        second.vanish()
        reader.wait_reads(100, timeout=120)
    assert reader.errors == []


def test_peer_stalled_reads_go_on(cloud: Cloud) -> None:
    """A peer that stops answering is hedged, then avoided."""
    first, second, image = two_hosts(cloud)
    stalled = wait_for("a data plane", second.dataplane_pid)
    with CheckedReader(first.file(image), image.content, seed=4) as reader:
        reader.wait_reads(100)
        os.kill(stalled, signal.SIGSTOP)
        try:
            reader.wait_reads(60, timeout=120)
        finally:
            os.kill(stalled, signal.SIGCONT)
        reader.wait_reads(60)
    assert reader.errors == []


def test_peer_lies_is_found_out(cloud: Cloud) -> None:
    """Wrong bytes from a peer are counted and never reach the reader."""
    first, second, image = two_hosts(cloud)
    corrupt_slots(second)
    with CheckedReader(first.file(image), image.content, seed=5) as reader:
        reader.wait_reads(200)
    assert reader.errors == []
    assert first.metric("acstor_peer_fetches", outcome="corrupt") > 0


def corrupt_slots(host: Host) -> None:
    """Invert bytes of every slot of a running host, which has verified them before."""
    (slots,) = (host.path / "store").glob("*slots*")
    with slots.open("r+b") as file:
        size = slots.stat().st_size
        for offset in range(4096, size, 16 << 10):
            file.seek(offset)
            block = file.read(64)
            file.seek(offset)
            file.write(bytes(byte ^ 0xFF for byte in block))


def test_peer_port_garbage_is_refused(cloud: Cloud) -> None:
    """Bytes that are no frames close the connection; the host goes on serving."""
    import socket

    host = cloud.add_host()
    image = cloud.register(8 * MIB)
    cloud.wait_ready(image)
    ring = host.ask("ring.show")
    address, _, port = ring["hosts"][0]["address"].rpartition(":")
    for garbage in (b"\0" * 64, b"\xff" * 4096, b"GET / HTTP/1.1\r\n\r\n", os.urandom(65536)):
        with socket.create_connection((address, int(port)), timeout=10) as connection:
            connection.settimeout(15)
            try:
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            except OSError:
                pass  # the host has closed it already
    assert host.file(image).read_bytes() == image.content
