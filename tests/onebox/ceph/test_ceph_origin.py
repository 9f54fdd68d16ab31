"""Images and volumes of a cloud whose origin is in a real Ceph, with the keys of the guide."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import exception
from testbed.ceph_clients import CONTROLLER, HOST
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.guest_console import GuestWriter, text_digest
from testbed.fixtures.instances import Instance, Instances, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volumes import THROUGH, Volumes, console
from testbed.onebox.configuration import ceph

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

OSD = "ceph-osd"
OUTAGE_S = 12.0
"""Longer than the deadline of a call: what waits has been refused, and was asked again."""
NOTICE_TIMEOUT = 120.0
READ = "/read"
"""File of a guest with the digest of what was read in the background."""


@pytest.fixture(scope="module")
def guests(ceph_box: RunningBox, tiny: Template) -> Iterator[list[Instance]]:
    """A guest on each host."""
    with instances_of(ceph_box) as made:
        found = [made.request(tiny, host=host)[0] for host in ceph_box.hosts]
        for server in found:
            server.wait()
        for server in found:
            server.checked(boot=1)
        yield found


def osd_counters(box: RunningBox) -> dict[str, Any]:
    """Return what the OSD has counted since its start."""
    told = json.loads(box.controller.run("ceph", "tell", "osd.0", "perf", "dump", "osd"))
    found: dict[str, Any] = told["osd"]
    return found


def test_hosts_have_the_key_of_hosts_and_no_other(box: RunningBox) -> None:
    for host in box.all_hosts:
        client = CONTROLLER if host is box.controller else HOST
        names = {path.name for path in host.path(ceph.CONFIG_FOLDER).iterdir()}
        assert names == {"ceph.conf", ceph.keyring_of(client)}
        path = f"{ceph.CONFIG_FOLDER}/{ceph.keyring_of(client)}"
        assert host.run("stat", "-c", "%a %U %G", path).split() == ["640", "root", "acstor"]
    for host in box.hosts:
        with pytest.raises(exception.ToolFailedError):
            host.run("ceph", "--connect-timeout", "10", "osd", "stat")


def test_server_boots_from_an_image_that_is_read_from_ceph(
    box: RunningBox, unseen: Template, instances: Instances
) -> None:
    """Registered, planted and read on demand; neither Glance nor a shared folder gives a byte."""
    host = box.hosts[0]
    box.wait_planted(unseen.id)
    left, read = osd_counters(box)["op_r_out_bytes"], host.metric("acstor_origin_bytes")
    server = instances.create(unseen, host=host)
    server.checked(boot=1)
    server.assert_on_link()
    assert not box.nova_downloads(unseen.id)
    read = host.metric("acstor_origin_bytes") - read
    assert read > 0
    assert osd_counters(box)["op_r_out_bytes"] - left >= read
    assert list((box.directory.shared / "origin").iterdir()) == []


def test_content_goes_with_the_volume_to_another_host(
    box: RunningBox, volumes: Volumes, guests: list[Instance]
) -> None:
    """The OSD has every write that was acknowledged, and the other host gets all of it."""
    first, second = guests
    volume_id = volumes.create(volume_type=THROUGH)
    written = osd_counters(box)["op_w_in_bytes"]
    with volumes.attached(first, volume_id) as disk:
        assert disk.is_zero(count_mib=2)
        disk.write("first", count_mib=8)
        disk.write("end", at_mib=1023)
        assert osd_counters(box)["op_w_in_bytes"] > written
        assert disk.holds("first", count_mib=8)
    with volumes.attached(second, volume_id) as disk:
        assert disk.holds("first", count_mib=8)
        assert disk.holds("end", at_mib=1023)
        assert disk.is_zero(at_mib=8, count_mib=2)
        disk.write("second", at_mib=2)
    with volumes.attached(first, volume_id) as disk:
        assert disk.holds("first", count_mib=2)
        assert disk.holds("second", at_mib=2)


@pytest.mark.disruptive
@pytest.mark.parametrize("is_killed", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_guest_waits_for_the_osd_and_goes_on(
    box: RunningBox, volumes: Volumes, guests: list[Instance], *, is_killed: bool
) -> None:
    """The only OSD is away, or says nothing, while a guest writes and reads: no error, no loss."""
    first, second = guests
    volume_id = volumes.create(volume_type=THROUGH)
    with volumes.attached(first, volume_id) as disk:
        disk.write("before", at_mib=16, count_mib=8)
    with volumes.attached(second, volume_id) as disk:
        terminal = console(second)
        writer = GuestWriter(terminal, disk)
        writer.wait_steps(terminal, 2)
        if is_killed:
            box.controller.kill(OSD)
        else:
            box.controller.signal(OSD, signal.SIGSTOP)
        try:
            terminal.run(f"({disk.digest_command(16, 8)} >{READ}) >/dev/null 2>&1 &")
            wait_for(
                "a write waits for the origin",
                lambda: (
                    second.host.metric("acstor_volume_waiting_seconds", volume=volume_id)
                    >= OUTAGE_S
                ),
                NOTICE_TIMEOUT,
                0.5,
            )
        finally:
            if is_killed:
                box.controller.start(OSD)
            else:
                box.controller.signal(OSD, signal.SIGCONT)
        writer.wait_steps(terminal, 2)
        writer.stop(terminal, disk)
        shown = f"cat {READ} 2>/dev/null; true"
        digest, _ = wait_for(
            "the guest has read", lambda: terminal.run(shown).split(), NOTICE_TIMEOUT, 0.5
        )
        assert digest == text_digest("before", 8)
        terminal.run(f"rm {READ}")
        assert "I/O error" not in terminal.run("dmesg")


@pytest.mark.extended
@pytest.mark.disruptive
def test_acknowledged_writes_outlive_everything_but_the_osd(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """A host is lost amidst writes; all other processes of ACStor and Ceph are killed as well."""
    source, target = box.hosts
    server = instances.create(tiny, host=source)
    server.checked(boot=1)
    volume_id = volumes.create(volume_type=THROUGH)
    volumes.api.attach(server.id, volume_id)
    disk = console(server).disk(volume_id)
    disk.write("acknowledged", at_mib=16, count_mib=8)
    GuestWriter(console(server), disk).wait_steps(console(server), 2)
    monitors = ("ceph-mon", "ceph-mgr")
    with box.host_lost(source):
        for host in (target, box.controller):
            host.kill(*reversed(host.acstor_services))
        box.controller.kill(*monitors)
        box.controller.start(*monitors)
        box.start_acstor(box.controller, target)
        box.api.compute.evacuate_server(server.id)
        box.wait_host(server.id, target)
        server.wait("SHUTOFF")
        box.api.compute.start_server(server.id)
        server.wait()
        server.checked(boot=1)
        disk = console(server).disk(volume_id)
        assert disk.holds("acknowledged", at_mib=16, count_mib=8)
        disk.write("after", at_mib=32)
    box.wait_settled()
    assert disk.holds("after", at_mib=32)
    volumes.api.detach(server.id, volume_id)
