"""A mount whose descriptor is elsewhere when a data plane starts without it."""

import ctypes
import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

from acstor.supervision.supervisor import Supervisor
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

_PIDFD_GETFD = 438
WAITS_FOR_EVER = """
import sys
from acstor.dataplane import host
from acstor.cmd.dataplane import main
host._HELD_STARTS_MAX = 1_000_000
sys.exit(main(sys.argv[1:]))
"""
"""A data plane that leaves a mount which others hold, however often it starts."""


def take_fuse(host: Host) -> int:
    """Return a duplicate of the ``/dev/fuse`` descriptor of a host's data plane."""
    pid = wait_for("a data plane", host.dataplane_pid)
    descriptors = pathlib.Path(f"/proc/{pid}/fd")
    number = next(e.name for e in descriptors.iterdir() if os.readlink(e) == "/dev/fuse")
    process = os.pidfd_open(pid)
    try:
        taken = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, int(number), 0)
    finally:
        os.close(process)
    assert taken >= 0, os.strerror(ctypes.get_errno())
    return int(taken)


def start_holder(host: Host) -> None:
    """Start a holder that was handed nothing, without waiting for its data plane."""
    config = ("--config-file", str(host.config))
    host._start("holder", "acstor-holder", *config, "--", *host.cloud.dataplane_command, *config)


@pytest.fixture
def held(cloud: Cloud) -> Iterator[tuple[Host, Image, int]]:
    """A host that offers an image, and a descriptor of its mount that outlives it."""
    host = cloud.add_host()
    image = cloud.register(8 * MIB)
    cloud.wait_ready(image)
    descriptor = take_fuse(host)
    yield host, image, descriptor
    os.close(descriptor)


def test_mount_that_is_handed_over_late_is_taken_over(
    cloud: Cloud, held: tuple[Host, Image, int]
) -> None:
    """Guests go on although the first data plane was started without the descriptor."""
    host, image, descriptor = held
    with CheckedReader(host.file(image), image.content, seed=7) as reader:
        reader.wait_reads(20)
        host.vanish()
        # However long it takes until it is handed over, nobody mounts anew.
        cloud.dataplane_command = (sys.executable, "-c", WAITS_FOR_EVER)
        start_holder(host)
        log = host.log_path
        wait_for("it leaves the mount alone", lambda: "another process holds" in log.read_text())
        assert Supervisor(str(host.path / "holder.sock")).store("fuse", descriptor)
        status = wait_for("it serves", host.status, timeout=60)
        assert status["fuse"]["taken_over"], host.log()
        reader.wait_reads(20)
    assert reader.errors == []


def test_mount_that_nobody_hands_over_is_made_anew(held: tuple[Host, Image, int]) -> None:
    """A descriptor that leaked somewhere keeps no host down for ever."""
    host, image, _ = held
    host.vanish()
    start_holder(host)
    status = wait_for("it serves", host.status, timeout=90)
    assert not status["fuse"]["taken_over"]
    assert "mounting anew" in host.log_path.read_text()
    assert host.file(image).read_bytes() == image.content
