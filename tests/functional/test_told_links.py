"""Free rates of links: measured by agents, told to data planes, and by these to each other."""

import os
import pathlib

import pytest

from acstor.control import rank_list
from acstor.control.client import AdminClient
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image
from testbed.fixtures.loaded_link import LoadedLink
from tests.functional.test_boot_profiles import ORDER, boot, content

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

LINK = "acstold"
SPEED = 10
"""Of the link, Mbit/s."""
FREE = SPEED * 125_000
"""Bytes per second of a link that carries nothing."""
FREE_NAME = "acstor_link_free_bytes_per_second"
TOLD_NAME = "acstor_peer_told_free_bytes_per_second"


def give_profile(host: Host, image: Image, path: pathlib.Path) -> None:
    """Have a data plane expect boots of an image in that order."""
    path.write_bytes(rank_list.encode([ORDER]))
    client = AdminClient(str(host.admin_socket))
    client.call("bootprofile.set", image=image.id, path=str(path))


def ordered(host: Host) -> float:
    """Return the bytes that a host has ordered ahead of its guests."""
    return host.metric("acstor_read_ahead_bytes", outcome="ordered")


def test_rates_of_a_link_are_measured_told_and_forgotten(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    """Guests boot over a full link, too; how little goes ahead there, tests of the crates say."""
    with LoadedLink(LINK, SPEED) as link:
        link.share = 1.5
        # The other end of the pair receives what is sent on this one.
        measured = {"interfaces": f"{LINK}p", "link_speed": SPEED, "state_interval": 0.5}
        host = cloud.add_host(agent=measured)
        cloud.add_host()
        full, free = (cloud.register(16 * MIB) for _ in range(2))
        for image in (full, free):
            cloud.wait_ready(image)
            give_profile(host, image, tmp_path / "orders")

        def rates() -> tuple[float, float]:
            return host.metric(FREE_NAME, direction="in"), host.metric(FREE_NAME, direction="out")

        wait_for("the link is told to be full", lambda: rates() == (0, FREE))
        assert boot(str(host.file(full)), ORDER) == content(full, ORDER)
        before = ordered(host)
        link.share = 0.0
        wait_for("the link is told to be free", lambda: rates()[0] > FREE / 2)
        descriptor = os.open(host.file(free), os.O_RDONLY | os.O_DIRECT)
        try:
            wait_for("the boot is read ahead", lambda: ordered(host) > before)
        finally:
            os.close(descriptor)
        host.kill("agent")
        wait_for("what the agent told is forgotten", lambda: rates() == (0, 0))


def test_peer_tells_what_its_link_has_to_spare_until_nobody_tells_it(cloud: Cloud) -> None:
    # Every answer of the peer tells it, so none may be replaced by one of the origin.
    patient = {"hedge_enabled": False, "load_aware": False}
    reader, owner = cloud.add_host(readpath=patient), cloud.add_host()
    told = AdminClient(str(owner.admin_socket))
    address = str((owner.status() or {})["peer_address"])
    for rate, valid, expected in ((0, 600, 2), (125_000_000, 600, 1 << 26), (None, 600, 0)):
        image = cloud.register(16 * MIB)
        cloud.wait_ready(image)
        told.call("link.free", in_bytes_per_s=None, out_bytes_per_s=rate, valid_s=valid)
        assert reader.file(image).read_bytes() == image.content
        assert reader.metric("acstor_read_chunks", tier="peer") > 0
        assert reader.metric(TOLD_NAME, peer=address) == expected
