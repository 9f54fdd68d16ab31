"""Servers whose image ACStor has: made, used and deleted as any others."""

import json

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.instances import FLAVOR, Instance, Instances
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.tiny_guest import boots_of_other_disk

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

USER = "una"
CONFIG_DRIVE_LABEL = b"config-2"
LABEL_OFFSET = 16 * 2048 + 40
"""Bytes in front of the label of an ISO 9660 file system."""
SERVERS_AT_ONCE = 8


def test_server_create_typed_by_a_user_boots_from_the_link(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """A user's command gives a server that reads its image through the data plane."""
    reads = {host.name: host.read_count() for host in box.hosts}
    text = box.openstack(
        "server", "create", "--image", tiny.id, "--flavor", FLAVOR, "--nic", "none", "--wait",
        "typed", "-f", "json",
    )  # fmt: skip
    server = instances.adopt(json.loads(text)["id"], tiny)
    server.checked(boot=1)
    server.assert_on_link()
    host = server.host
    assert host.read_count() > reads[host.name]
    assert not box.nova_downloads(tiny.id)


def test_eight_servers_at_once_read_their_image(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Eight at once, on both hosts: each guest reads what the image holds."""
    # Left alone, the scheduler would prefer the host that has read the image before.
    share = SERVERS_AT_ONCE // len(box.hosts)
    servers = [
        server for host in box.hosts for server in instances.request(tiny, host=host, count=share)
    ]
    for server in servers:
        server.wait()
    for server in servers:
        server.checked(boot=1)
        server.assert_on_link()
    assert not box.nova_downloads(tiny.id)


def test_server_with_a_config_drive_boots(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Nova makes an ISO image of its metadata beside the server's disk, with genisoimage."""
    with box.ordinary_user(USER):
        text = box.openstack(
            "server", "create", "--image", tiny.id, "--flavor", FLAVOR, "--nic", "none",
            "--config-drive", "true", "--wait", "-f", "json", "configured", user=USER,
        )  # fmt: skip
    server = instances.adopt(json.loads(text)["id"], tiny)
    server.checked(boot=1)
    server.assert_on_link()
    found = box.api.server(server.id)
    assert found is not None
    assert found.has_config_drive
    host = server.host
    drive = host.path(f"{host.instances_path}/{server.id}/disk.config")
    with drive.open("rb") as file:
        file.seek(LABEL_OFFSET)
        assert file.read(len(CONFIG_DRIVE_LABEL)) == CONFIG_DRIVE_LABEL


def test_server_delete_leaves_the_link(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """A deleted server's folder goes; the image stays planted for the next."""
    server = instances.create(tiny)
    host = server.host
    assert host.exists(f"{host.instances_path}/{server.id}/disk")
    box.api.wait_deleted(instances.delete())
    assert not host.exists(f"{host.instances_path}/{server.id}")
    assert host.base_kind(tiny.id) == "link"


def test_server_stopped_starts_with_what_it_wrote(
    instances: Instances, tiny: Template, box: RunningBox
) -> None:
    """Stop and start: the second boot of the same disk."""
    server = instances.create(tiny)
    server.checked(boot=1)
    box.api.compute.stop_server(server.id)
    server.wait("SHUTOFF")
    box.api.compute.start_server(server.id)
    server.wait()
    server.checked(boot=2)
    server.assert_on_link()


def test_server_hard_reboot_boots_the_same_disk(
    instances: Instances, tiny: Template, box: RunningBox
) -> None:
    """A hard reboot makes the domain anew on the same overlay."""
    server = instances.create(tiny)
    server.checked(boot=1)
    box.api.compute.reboot_server(server.id, "HARD")
    server.checked(boot=2)
    server.wait()
    server.assert_on_link()


def test_server_rebuilt_boots_another_image(
    instances: Instances, tiny: Template, other_tiny: Template, box: RunningBox
) -> None:
    """After a rebuild the disk is that of the other image, never booted before."""
    server = instances.create(tiny)
    server.checked(boot=1)
    box.api.compute.rebuild_server(server.id, image=other_tiny.id)
    server.wait()
    server.checked(boot=1, template=other_tiny)
    server.assert_on_link(other_tiny)
    assert not box.nova_downloads(other_tiny.id)


def test_server_rescued_boots_the_rescue_image(
    instances: Instances, tiny: Template, other_tiny: Template, box: RunningBox
) -> None:
    """Rescue boots another image with the server's disk beside it; unrescue goes back to that."""
    server = instances.create(tiny)
    server.checked(boot=1)
    box.api.compute.rescue_server(server.id, image=other_tiny.id)
    server.wait("RESCUE")
    server.checked(boot=1, template=other_tiny)
    assert boots_of_other_disk(server.console()) == 1
    assert server.backing_file("disk.rescue") == server.host.base_path(other_tiny.id)
    box.api.compute.unrescue_server(server.id)
    server.wait()
    server.checked(boot=2)
    server.assert_on_link()


@pytest.mark.alone
def test_servers_of_an_image_share_its_bytes(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """A second boot on the same host reads nothing from the origin."""
    host = box.hosts[0]
    first = instances.create(tiny, host=host)
    first.checked(boot=1)
    before = host.metric("acstor_origin_bytes")
    second: Instance = instances.create(tiny, host=host)
    second.checked(boot=1)
    assert host.metric("acstor_origin_bytes") == before
