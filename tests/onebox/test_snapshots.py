"""Images made of servers, servers made of such images, and Nova's own pre-caching."""

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import Instances
from testbed.fixtures.one_box import RunningBox

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


def snapshot_of_a_server(box: RunningBox, like: Template, instances: Instances) -> Template:
    """Return the image that Nova made of a server which has booted once."""
    server = instances.create(like)
    server.checked(boot=1)
    snapshot_id = box.api.compute.create_server_image(server.id, "snapshot").id
    box.delete_later(snapshot_id)
    box.wait_image_active(snapshot_id)
    server.wait()
    return box.as_template(snapshot_id, like)


def test_snapshot_boots_by_download_with_what_the_server_wrote(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """A snapshot is left to Nova: the reason is listed, and Nova boots it as without ACStor."""
    snapshot = snapshot_of_a_server(box, tiny, instances)
    entry = box.wait_registry(snapshot.id, {"left"})
    assert "image_type=snapshot" in entry["reason"]
    copy = instances.create(snapshot)
    copy.checked(boot=2)
    copy.assert_on_own_file()
    assert box.nova_downloads(snapshot.id)


def test_snapshot_without_its_mark_boots_through_a_link(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """One command turns a snapshot into an image as others, for many servers to start from."""
    snapshot = snapshot_of_a_server(box, tiny, instances)
    box.openstack("image", "unset", "--property", "image_type", snapshot.id)
    box.wait_planted(snapshot.id)
    copy = instances.create(snapshot)
    copy.checked(boot=2)
    copy.assert_on_link()
    assert not box.nova_downloads(snapshot.id)


@pytest.mark.alone
@pytest.mark.extended
def test_snapshots_are_registered_where_the_operator_wants_them(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """And leave the hosts again, after their grace, where the operator does not any more."""
    options = {"registrar": {"snapshots": "register"}}
    with box.reconfigured(box.controller, "acstor-registrar", options):
        snapshot = snapshot_of_a_server(box, tiny, instances)
        box.wait_planted(snapshot.id)
    entry = box.wait_registry(snapshot.id, {"left"})
    assert "image_type=snapshot" in entry["reason"]
    box.wait_unplanted(snapshot.id)


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
    """A user's command to pre-cache an image finds it on the hosts, nothing is downloaded."""
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
