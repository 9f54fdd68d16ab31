"""Data planes that go under guests with volumes, and hosts that are lost with them."""

import functools
import os
import pathlib
import random
import signal

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.forgetful_log import forgetful_log, guests_resumed_at_boot
from testbed.fixtures.guest_console import GuestWriter
from testbed.fixtures.instances import Instances
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volume_api import VolumeApi
from testbed.fixtures.volume_types import volume_types_of
from testbed.fixtures.volumes import THROUGH, Volumes, console, volumes_of
from testbed.onebox import environment

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
        # The instances' folders are not shared: what it wrote to its root disk is lost.
        server.checked(boot=1)
        server.assert_on_link()
        disk = console(server).disk(volume_id)
        assert disk.holds("acknowledged", count_mib=8)
        disk.write("after", at_mib=8)
    box.wait_settled()
    assert disk.holds("after", at_mib=8)
    volumes.api.detach(server.id, volume_id)


def test_host_that_lost_its_power_comes_back_with_what_was_flushed(
    box: RunningBox, tiny: Template, instances: Instances, tmp_path: pathlib.Path
) -> None:
    """Everything of the host is killed at once, and its logs' disk forgets what was not flushed.

    Nova starts the guest at the boot: it disconnects the volume by force and connects it again.
    Nothing of the volume was pushed before, so what is there comes from the host's log.
    """
    host = box.hosts[0]
    api = VolumeApi(box.api.connection)
    kept = {"acstor:durability": "write-back", "acstor:period": "3600"}
    with (
        forgetful_log(host, tmp_path) as log,
        guests_resumed_at_boot(host),
        volume_types_of(api) as types,
        volumes_of(box, api) as volumes,
    ):
        server = instances.create(tiny, host=host)
        server.checked(boot=1)
        volume_id = volumes.create(
            volume_type=types.make("kept-here", {"volume_backend_name": "acstor", **kept})
        )
        volumes.api.attach(server.id, volume_id)
        console(server).run("sync")  # the guest's own disk, from which it boots again
        disk = console(server).disk(volume_id)
        for number in range(4):
            disk.write(f"flushed-{number}", at_mib=2 * number, count_mib=2)
        writer = disk.write_command("not-flushed", "16", 8).replace("conv=notrunc,fsync", "")
        console(server).run(f"({writer}) >/dev/null 2>&1 &")
        log.cut_power(random.Random(5))
        log.mount()
        host.start(*host.service_names)
        server.checked(boot=2)
        disk = console(server).disk(volume_id)
        for number in range(4):
            assert disk.holds(f"flushed-{number}", at_mib=2 * number, count_mib=2)
        disk.write("after", at_mib=24)
        assert disk.holds("after", at_mib=24)
        volumes.api.detach(server.id, volume_id)
        box.wait_settled()
