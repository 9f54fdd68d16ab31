"""Data planes that go under guests with volumes, and hosts that are lost with them."""

import functools
import os
import signal

import pytest

from acstor.testbed.onebox import environment
from tests.fixtures.cloud_api import Template
from tests.fixtures.compute_host import ComputeHost
from tests.fixtures.conditions import wait_for
from tests.fixtures.guest_console import GuestWriter
from tests.fixtures.instances import Instances
from tests.fixtures.one_box import RunningBox
from tests.fixtures.volumes import THROUGH, Volumes, console

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox, pytest.mark.disruptive,
]  # fmt: skip

DATA_PLANE = "acstor-dataplane"
KILLS = 3


@pytest.fixture
def reconnecting() -> None:
    """A libvirt with which guests take up lost connections."""
    version = environment.libvirt_version()
    if not environment.volumes_reconnect(version) and os.environ.get("CI") != "true":
        pytest.skip(f"libvirt {version} does not hand reconnect-delay on; 9.2 does")


def serves_anew(host: ComputeHost, killed: int) -> bool:
    return host.serves() and host.dataplane_pid() != killed


def test_data_plane_goes_and_comes_under_a_guest_that_writes(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances, reconnecting: None
) -> None:
    """Killed several times, then stopped in order with its holder: no write fails or is lost.

    The guest's root is a volume too: an image over FUSE has nobody who keeps it without a holder.
    """
    server = instances.boot(volumes.create(imageRef=tiny.id), tiny)
    server.checked(boot=1)
    host = server.host
    volume_id = volumes.create()
    with volumes.attached(server, volume_id) as disk:
        writer = GuestWriter(console(server), disk)
        for _ in range(KILLS):
            writer.wait_steps(console(server), 2)
            killed = host.dataplane_pid()
            os.kill(killed, signal.SIGKILL)
            wait_for("another one serves", functools.partial(serves_anew, host, killed), 60)
        writer.wait_steps(console(server), 2)
        host.stop(DATA_PLANE)
        assert not host.serves()
        host.start(DATA_PLANE)
        writer.wait_steps(console(server), 2)
        writer.stop(console(server), disk)
        assert "I/O error" not in console(server).run("dmesg")
    server.checked(after=server.checked())
    assert not server.could_not_read()


def test_evacuated_server_has_what_its_volume_acknowledged(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """Its host is lost: the other one takes it over with every write that was acknowledged."""
    source, target = box.hosts
    server = instances.create(tiny, host=source)
    server.checked(boot=1)
    volume_id = volumes.create(volume_type=THROUGH)
    volumes.api.attach(server.id, volume_id)
    disk = console(server).disk(volume_id)
    disk.write("acknowledged", count_mib=8)
    with box.host_lost(source):
        box.api.compute.evacuate_server(server.id)
        box.wait_host(server.id, target)
        server.wait("SHUTOFF")
        box.api.compute.start_server(server.id)
        server.wait()
        server.checked(boot=1)
        disk = console(server).disk(volume_id)
        assert disk.holds("acknowledged", count_mib=8)
        disk.write("after", at_mib=8)
    box.wait_settled()
    assert disk.holds("after", at_mib=8)
    volumes.api.detach(server.id, volume_id)
