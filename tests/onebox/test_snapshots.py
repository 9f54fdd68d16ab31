"""Images made of servers, servers made of such images, and Nova's own pre-caching."""

import pytest

from tests.fixtures.cloud_api import Template
from tests.fixtures.conditions import wait_for
from tests.fixtures.instances import Instances
from tests.fixtures.one_box import RunningBox

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


def test_snapshot_boots_with_what_the_server_wrote(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """A snapshot is an image as any other: registered, planted, booted through its link."""
    server = instances.create(tiny)
    server.checked(boot=1)
    snapshot_id = box.api.compute.create_server_image(server.id, "snapshot").id
    box.delete_later(snapshot_id)
    box.wait_image_active(snapshot_id)
    server.wait()
    snapshot = box.as_template(snapshot_id, tiny)
    box.wait_planted(snapshot_id)
    copy = instances.create(snapshot)
    copy.checked(boot=2)
    copy.assert_on_link()
    assert not box.nova_downloads(snapshot_id)


def test_shelved_server_comes_back_with_what_it_wrote(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Shelve sends the disk to Glance and leaves the host; unshelve makes it anew from there."""
    server = instances.create(tiny)
    server.checked(boot=1)
    home = server.host
    box.api.compute.shelve_server(server.id)
    wait_for("it is shelved", lambda: box.is_offloaded(server.id), 150, 0.5)
    assert not home.exists(f"{home.instances_path}/{server.id}/disk")
    box.api.compute.unshelve_server(server.id)
    server.wait()
    server.checked(boot=2)


def test_aggregate_cache_image_finds_the_link(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """What a user types to pre-cache an image: the hosts have it already, nothing is downloaded."""
    with box.aggregate("cached", box.hosts) as aggregate:
        box.openstack("aggregate", "cache", "image", aggregate, tiny.id)
        for host in box.hosts:
            box.wait_log(
                host, "nova-compute", f"Image {tiny.id} already cached; updating timestamp"
            )
    server = instances.create(tiny)
    server.checked(boot=1)
    for host in box.hosts:
        assert host.base_kind(tiny.id) == "link"
    assert not box.nova_downloads(tiny.id)
