"""Servers with volumes that go from one host to the other."""

import json

import pytest

from tests.fixtures.cloud_api import Template
from tests.fixtures.guest_console import GuestWriter
from tests.fixtures.instances import FLAVOR, Instance, Instances
from tests.fixtures.one_box import RunningBox
from tests.fixtures.volumes import Volumes, console

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


def booted_from_volume(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> Instance:
    """Return a server on the first host whose root is a volume of the tiny guest's image."""
    root = volumes.create(imageRef=tiny.id)
    text = box.openstack(
        "server", "create", "--volume", root, "--flavor", FLAVOR, "--nic", "none", "--wait",
        "--host", box.hosts[0].name, box.test_name, "-f", "json",
    )  # fmt: skip
    server = instances.adopt(json.loads(text)["id"], tiny)
    server.checked(boot=1)
    return server


def test_live_migration_loses_nothing_of_what_the_guest_writes(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """Root and data are volumes; the guest writes on while it moves, there and back."""
    server = booted_from_volume(box, tiny, volumes, instances)
    volume_id = volumes.create()
    before = server.checked(boot=1)
    with volumes.attached(server, volume_id) as disk:
        writer = GuestWriter(console(server), disk)
        writer.wait_steps(console(server), 4)
        for target in reversed(box.hosts):
            box.api.compute.live_migrate_server(server.id, host=target.name, block_migration=False)
            box.wait_host(server.id, target)
            server.wait()
            writer.wait_steps(console(server), 4)
        disk = console(server).disk(volume_id)
        writer.stop(console(server), disk)
    after = server.checked(after=before)
    assert after.uptime_s > before.uptime_s
    assert not server.could_not_read()
