"""The origin goes away and comes back under readers."""

import errno
import os

import pytest

from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud

CHUNK = 64 << 10
READS = {"read_deadline": 20, "origin_deadline": 10, "peer_deadline": 10, "prefetch_max": 0}
"""Deadlines that reads meet which have all they need, also where a process stands still."""

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]


def test_origin_gone_cached_reads_go_on_and_the_rest_recovers(cloud: Cloud) -> None:
    """Cached reads never notice; others are EIO at the deadline, then work without a restart."""
    host = cloud.add_host(readpath=READS)
    image = cloud.register(32 * MIB)
    cloud.wait_ready(image)
    cached = 4 * MIB
    fd = os.open(host.file(image), os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(fd, cached, 0) == image.content[:cached]
        kept = cached // CHUNK
        wait_for("the chunks are kept", lambda: host.metric("acstor_store_inserted") >= kept)
        packs, away = cloud.origin / "packs", cloud.origin / "packs-away"
        with CheckedReader(host.file(image), image.content, seed=6, span=cached) as reader:
            packs.rename(away)
            try:
                # Packs that the reader of the origin has open stay readable; a new one has none.
                killed = wait_for("a data plane", host.dataplane_pid)
                host.kill_dataplane()
                host.wait_restarted(killed)
                assert first_errno(fd, 24 * MIB) == errno.EIO
                reader.wait_reads(200)
            finally:
                away.rename(packs)
            tail = image.content[24 * MIB : 32 * MIB]
            wait_for("reads work again", lambda: readable(fd, 24 * MIB, tail), timeout=60)
        assert reader.errors == []
    finally:
        os.close(fd)


def first_errno(fd: int, start: int) -> int | None:
    """Read what no cache has until a read fails; return how."""
    for offset in range(start, start + 4 * MIB, 256 << 10):
        try:
            os.pread(fd, 4096, offset)
        except OSError as error:
            return error.errno
    return None


def readable(fd: int, offset: int, content: bytes) -> bool:
    """Return whether the bytes can be read; they must be right then."""
    try:
        found = os.pread(fd, len(content), offset)
    except OSError:
        return False
    assert found == content[: len(found)]
    return len(found) == len(content)
