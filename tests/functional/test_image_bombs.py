"""Images that describe more than they hold: the real registrar, and a host that follows it."""

import contextlib
import functools
import pathlib
import shutil

import pytest

from testbed.doubles.registrar_cloud import content_of
from testbed.fixtures.anonymous_memory import watched
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host
from testbed.fixtures.registrar_deployment import Deployment

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing"),
]  # fmt: skip

CHUNK_SIZE = 64 << 10
GROWTH_MAX = 5 * MIB
"""Largest growth of a data plane's own memory, whatever images describe."""


def is_kept(host: Host, image: str) -> bool:
    found = host.ask("image.list") or []
    return any(each["id"] == image and each["pinned_bytes"] for each in found)


def is_told(deployment: Deployment, image: str) -> bool:
    return f"image {image}" in deployment.log()


def test_disks_of_a_tebibyte_cost_a_host_nothing(tmp_path: pathlib.Path) -> None:
    """They are refused, with the reason; an image of somebody else goes to the host meanwhile."""
    with contextlib.ExitStack() as stack:
        deployment = stack.enter_context(
            contextlib.closing(Deployment(tmp_path, chunk_size=CHUNK_SIZE))
        )
        cloud = Cloud(tmp_path)
        stack.callback(cloud.stop)
        host = cloud.add_host()
        deployment.start()

        def bring(number: int) -> None:
            """Upload an image and wait until the host has it, and keeps its ends."""
            image = deployment.upload(number, content_of(number, MIB // 4), "raw", owner="another")
            deployment.wait(image, "registered")
            cloud.wait_ready(image)
            wait_for(f"{image} is kept", functools.partial(is_kept, host, image))

        # What is needed once for all images is there after some.
        for number in range(10, 16):
            bring(number)
        pid = host.dataplane_pid()
        assert pid is not None
        with watched(pid) as (memory,):
            bombs = [deployment.create(3 + nth, size) for nth, size in enumerate(("1T", "1P"))]
            bring(5)
            for bomb in bombs:
                entry = deployment.wait(bomb, "left", "registered", "failed")
                assert entry.state == "left", entry
                assert "more than disk_size_max = " in entry.reason
                # It is written after the registry has it.
                wait_for(f"the log tells of {bomb}", functools.partial(is_told, deployment, bomb))
            # A host that has an image from after that has heard of what was before it.
            bring(6)
            assert not any(host.file(bomb).exists() for bomb in bombs)
            print(f"RssAnon grew by {memory.growth} bytes")
            assert memory.growth <= GROWTH_MAX
