"""Servers with volumes that go from one host to the other."""

from collections.abc import Iterator

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.guest_console import GuestWriter
from testbed.fixtures.instances import Instance, Instances, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volumes import Volumes, console, volumes_of

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


@pytest.fixture(scope="module")
def rooted(whole_box: RunningBox, tiny: Template) -> Iterator[Instance]:
    """A server whose root is a volume of the tiny guest's image: each test moves it on."""
    with volumes_of(whole_box) as volumes, instances_of(whole_box) as instances:
        root = volumes.create(imageRef=tiny.id)
        server = instances.boot(root, tiny, host=whole_box.hosts[0])
        server.checked(boot=1)
        yield server


def other_host(box: RunningBox, server: Instance) -> ComputeHost:
    here = server.host.name
    return next(host for host in box.hosts if host.name != here)


def epoch_of(box: RunningBox, volume_id: str) -> int:
    return int(box.controller.acstor("volume", "show", volume_id)["epoch"])


def test_live_migration_loses_nothing_of_what_the_guest_writes(
    box: RunningBox, volumes: Volumes, rooted: Instance
) -> None:
    """Root and data are volumes; the guest writes on while it moves, there and back.

    Each change of the owner is an epoch: QEMU's look at the disk at the destination is none.
    """
    volume_id = volumes.create()
    before = rooted.checked()
    with volumes.attached(rooted, volume_id) as disk:
        epoch = epoch_of(box, volume_id)
        writer = GuestWriter(console(rooted), disk)
        writer.wait_steps(console(rooted), 4)
        for _ in box.hosts:
            target = other_host(box, rooted)
            box.api.compute.live_migrate_server(rooted.id, host=target.name, block_migration=False)
            box.wait_host(rooted.id, target)
            rooted.wait()
            writer.wait_steps(console(rooted), 4)
        assert epoch_of(box, volume_id) == epoch + len(box.hosts)
        writer.stop(console(rooted), console(rooted).disk(volume_id))
    after = rooted.checked(after=before)
    assert after.uptime_s > before.uptime_s
    assert not rooted.could_not_read()


def test_cold_migration_takes_volumes_along(
    box: RunningBox, volumes: Volumes, rooted: Instance
) -> None:
    """Root and data: what was written before is there after."""
    volume_id = volumes.create()
    target, before = other_host(box, rooted), rooted.checked()
    with volumes.attached(rooted, volume_id) as disk:
        disk.write("moved", count_mib=4)
        box.api.compute.migrate_server(rooted.id, host=target.name)
        rooted.wait("VERIFY_RESIZE")
        box.api.compute.confirm_server_resize(rooted.id)
        rooted.wait()
        rooted.checked(boot=before.boot + 1)
        assert rooted.host.name == target.name
        assert console(rooted).disk(volume_id).holds("moved", count_mib=4)


def test_live_block_migration_takes_the_volume_along(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """The root disk is copied by QEMU, the volume only changes its owner."""
    source, target = box.hosts
    server = instances.create(tiny, host=source)
    before = server.checked(boot=1)
    volume_id = volumes.create()
    with volumes.attached(server, volume_id) as disk:
        disk.write("moved", count_mib=4)
        box.api.compute.live_migrate_server(server.id, host=target.name, block_migration=True)
        box.wait_host(server.id, target)
        server.wait()
        disk = console(server).disk(volume_id)
        assert disk.holds("moved", count_mib=4)
        disk.write("there", at_mib=4)
        assert disk.holds("there", at_mib=4)
    server.checked(after=before)
