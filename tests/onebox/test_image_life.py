"""Images whose properties say something to ACStor, and images that go while servers use them."""

import functools
import pathlib

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import LARGER_FLAVOR, Instances
from testbed.fixtures.one_box import RunningBox

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


def test_image_with_cache_false_is_left_to_nova(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """``acstor_cache=false``: never registered, the reason is listed, Nova downloads it."""
    image = box.fresh(tiny, acstor_cache="false")
    entry = box.wait_registry(image.id, {"left"})
    assert "acstor_cache" in entry["reason"]
    server = instances.create(image)
    server.checked(boot=1)
    server.assert_on_own_file()
    assert box.nova_downloads(image.id)


def test_image_with_pin_true_is_listed_as_pinned(box: RunningBox, tiny: Template) -> None:
    """``acstor_pin=true`` reaches the catalogue and the image is planted as any other.

    It counts on public images; on what anybody may upload it is ignored, and listed as that.
    """
    image = box.fresh(tiny, acstor_pin="true", visibility="public")
    entry = box.wait_registry(image.id, {"registered"})
    assert (entry["pin"], entry["pin_ignored"]) == (True, False)
    box.wait_planted(image.id)
    private = box.fresh(tiny, acstor_pin="true", visibility="private")
    entry = box.wait_registry(private.id, {"registered"})
    assert (entry["pin"], entry["pin_ignored"]) == (False, True)


def test_kernel_image_is_left_to_nova(box: RunningBox, tiny: Template) -> None:
    """A kernel is copied by Nova, never linked: the registry says so, no host has a link."""
    entry = box.wait_registry(tiny.kernel_id, {"left"})
    assert entry["reason"]
    for host in box.hosts:
        assert host.base_kind(tiny.kernel_id) in ("nothing", "file")


def test_image_made_cacheable_later_is_registered(box: RunningBox, tiny: Template) -> None:
    """The property may change: what was left is registered once nothing speaks against it."""
    image = box.fresh(tiny, acstor_cache="false")
    box.wait_registry(image.id, {"left"})
    box.api.set_image_property(image.id, "acstor_cache", "true")
    box.wait_planted(image.id)


def test_deleted_image_serves_its_servers_until_they_are_gone(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Deleted in Glance: stop, start, resize and migration go on; withdrawn after the last one."""
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    source, target = box.hosts
    server = instances.create(image, host=source)
    server.checked(boot=1)
    box.api.delete_image(image.id)
    box.wait_registry(image.id, {"withdrawn"})

    box.api.compute.stop_server(server.id)
    server.wait("SHUTOFF")
    box.api.compute.start_server(server.id)
    server.wait()
    server.checked(boot=2)
    box.api.compute.resize_server(server.id, LARGER_FLAVOR)
    server.wait("VERIFY_RESIZE")
    box.api.compute.confirm_server_resize(server.id)
    server.wait()
    before = server.checked(boot=3)
    assert server.host.name == target.name
    box.api.compute.live_migrate_server(server.id, host=source.name, block_migration=True)
    box.wait_host(server.id, source)
    server.wait()
    server.checked(after=before)
    server.assert_on_link()

    box.api.wait_deleted(instances.delete())
    box.wait_unplanted(image.id)
    for host in box.hosts:
        offered = host.path(f"{host.mount_point}/{image.id}.raw")
        wait_for("it is offered no more", functools.partial(is_missing, offered), 60, 0.5)


def is_missing(path: pathlib.Path) -> bool:
    return not path.exists()


def test_bytes_of_a_project_are_told(box: RunningBox, tiny: Template) -> None:
    """The administrator's project owns the images of the tests, and what they need is stored."""
    assert box.registry_entry(tiny.id) is not None
    rows = box.controller.acstor("repository", "space", "--by", "project")
    found = {row["project_id"]: row for row in rows}
    project = found[box.api.connection.current_project_id]
    assert project["used_bytes"] == project["unique_bytes"] + project["shared_bytes"] > 0


@pytest.mark.extended
def test_deleted_image_without_servers_is_withdrawn(box: RunningBox, tiny: Template) -> None:
    """Nobody uses it: its links go from all hosts, and other images of its content stay."""
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    box.api.delete_image(image.id)
    box.wait_unplanted(image.id)
    for host in box.hosts:
        assert host.base_kind(tiny.id) == "link"


def test_deactivated_image_comes_back(box: RunningBox, tiny: Template) -> None:
    """Deactivated is withdrawn; reactivated is planted again."""
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    box.api.image_action(image.id, "deactivate")
    box.wait_registry(image.id, {"withdrawn"})
    box.wait_unplanted(image.id)
    box.api.image_action(image.id, "reactivate")
    box.wait_planted(image.id)
