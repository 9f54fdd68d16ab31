"""The first storm of an image on real data planes: hosts fetch what others miss."""

import functools
import mmap
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from acstor import oid
from acstor.cluster.ring.published_ring import read_ring
from acstor.origin.posix import PosixOrigin
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

CHUNK = 64 << 10
CHUNKS = 16 * MIB // CHUNK
ORDER = tuple(at * 37 % CHUNKS for at in range(60))
LATER = tuple(at * 37 % CHUNKS for at in range(60, 120))


@contextmanager
def opened(host: Host, image: Image) -> Iterator[int]:
    """Open an image past the page cache, as a guest does that boots."""
    descriptor = os.open(host.file(image), os.O_RDONLY | os.O_DIRECT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(descriptor: int, image: Image, order: Sequence[int]) -> None:
    """Read 4 KiB of each chunk, and compare them."""
    with mmap.mmap(-1, 4096) as buffer:
        for chunk in order:
            assert os.preadv(descriptor, [buffer], chunk * CHUNK) == 4096
            assert buffer[:] == image.content[chunk * CHUNK : chunk * CHUNK + 4096]


def hinted(host: Host, outcome: str) -> float:
    """Return the bytes that a host fetched on hints."""
    return host.metric("acstor_exchange_bytes", outcome=outcome)


def rendezvous(cloud: Cloud, image: Image) -> str:
    """Return the name of the rendezvous host of an image."""
    published = read_ring(PosixOrigin(str(cloud.origin)))
    assert published is not None
    return published.ring.owner(oid.rendezvous(uuid.UUID(image.id)))


@pytest.fixture
def storm(cloud: Cloud) -> tuple[Cloud, Image]:
    """Four hosts that tell each other what they miss, and an image that nobody has booted."""
    for _ in range(4):
        cloud.add_host(readpath={"exchange": "tree", "exchange_fan_out": 2})
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    return cloud, image


def test_followers_have_what_the_first_missed(storm: tuple[Cloud, Image]) -> None:
    cloud, image = storm
    first, *followers = cloud.hosts
    with (
        opened(first, image) as leading,
        opened(followers[0], image) as second,
        opened(followers[1], image) as third,
        opened(followers[2], image) as fourth,
    ):
        for host in cloud.hosts:
            wait_for("it takes part", functools.partial(host.metric, "acstor_exchanges"))
        read(leading, image, ORDER)
        for host in followers:
            wait_for("hints are followed", functools.partial(hinted, host, "ordered"))
        for descriptor in (second, third, fourth):
            read(descriptor, image, ORDER)
        for host in followers:
            assert hinted(host, "matched") + hinted(host, "late") > 0
    union = sum(any(image.content[at * CHUNK : (at + 1) * CHUNK]) for at in ORDER) * CHUNK
    origin = sum(host.metric("acstor_origin_bytes") for host in cloud.hosts)
    # How much less is a question of clocks, as nobody waits long for a peer: a benchmark's.
    assert origin < len(cloud.hosts) * union
    wait_for("it is over", lambda: not sum(h.metric("acstor_exchanges") for h in cloud.hosts))


def test_rendezvous_that_is_killed_is_followed_by_the_next(storm: tuple[Cloud, Image]) -> None:
    cloud, image = storm
    name = rendezvous(cloud, image)
    killed = next(host for host in cloud.hosts if host.name == name)
    leader, follower = [host for host in cloud.hosts if host is not killed][:2]
    with opened(leader, image) as leading, opened(follower, image) as following:
        for host in (leader, follower):
            wait_for("it takes part", functools.partial(host.metric, "acstor_exchanges"))
        read(leading, image, ORDER)
        wait_for("hints are followed", lambda: hinted(follower, "ordered"))
        read(following, image, ORDER)
        before = hinted(follower, "ordered")
        pid = wait_for("a data plane", killed.dataplane_pid)
        killed.kill_dataplane()
        # What is missed meanwhile is learnt by another, or by this one when it is back.
        read(leading, image, LATER)
        killed.wait_restarted(pid)
        rest = [at for at in range(CHUNKS) if at not in ORDER and at not in LATER]
        unread = iter(rest)

        def goes_on() -> bool:
            # One at a time: members say every few seconds that they still take part.
            read(leading, image, [chunk for chunk in [next(unread, None)] if chunk is not None])
            return hinted(follower, "ordered") > before

        wait_for("hints are followed again", goes_on, interval=0.2)
        read(following, image, [*LATER, *rest])
