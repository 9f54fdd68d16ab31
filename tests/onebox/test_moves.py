"""Servers that go from one host to the other; the image is planted on both."""

from collections.abc import Callable

import pytest

from testbed.fixtures.cloud_api import POLL_SECONDS, Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import LARGER_FLAVOR, Instance, Instances
from testbed.fixtures.one_box import RunningBox

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


def booted_on(instances: Instances, template: Template, host: ComputeHost) -> Instance:
    server = instances.create(template, host=host)
    server.checked(boot=1)
    return server


def assert_moved(server: Instance, box: RunningBox, target: ComputeHost) -> None:
    """It runs on the target, on the planted link; the source keeps none of it."""
    assert server.host.name == target.name
    server.assert_on_link()
    assert not box.nova_downloads(server.template.id)
    for host in box.hosts:
        if host.name != target.name:
            assert not host.exists(f"{host.instances_path}/{server.id}/disk")


def resize(box: RunningBox, server: Instance, target: ComputeHost) -> None:
    """Nova looks for another host, and there is one other."""
    box.api.compute.resize_server(server.id, LARGER_FLAVOR)


def migrate(box: RunningBox, server: Instance, target: ComputeHost) -> None:
    box.api.compute.migrate_server(server.id, host=target.name)


@pytest.mark.parametrize(("move", "source_index"), [(resize, 0), (migrate, 1)])
def test_confirmed_move_runs_on_the_other_host(
    box: RunningBox,
    tiny: Template,
    instances: Instances,
    move: Callable[[RunningBox, Instance, ComputeHost], None],
    source_index: int,
) -> None:
    """Only the overlay is copied, with what the guest wrote; its base is the other host's link."""
    source, target = box.hosts[source_index], box.hosts[1 - source_index]
    server = booted_on(instances, tiny, source)
    move(box, server, target)
    server.wait("VERIFY_RESIZE")
    server.checked(boot=2)
    box.api.compute.confirm_server_resize(server.id)
    server.wait()
    assert_moved(server, box, target)


def test_resize_reverted_runs_where_it_was(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """A revert goes back to the disk and the host of before."""
    source, target = box.hosts
    server = booted_on(instances, tiny, source)
    box.api.compute.resize_server(server.id, LARGER_FLAVOR)
    server.wait("VERIFY_RESIZE")
    assert server.host.name == target.name
    box.api.compute.revert_server_resize(server.id)
    server.wait()
    server.checked(boot=2)
    assert_moved(server, box, source)


def test_live_block_migration_keeps_the_guest_running(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """The guest goes on without a boot and reads its files through the other data plane."""
    source, target = box.hosts
    server = booted_on(instances, tiny, source)
    before = server.checked(boot=1)
    reads = target.read_count()
    box.api.compute.live_migrate_server(server.id, host=target.name, block_migration=True)
    box.wait_host(server.id, target)
    server.wait()
    after = server.checked(after=before)
    server.checked(after=after)
    assert after.uptime_s > before.uptime_s
    assert target.read_count() > reads
    assert not server.could_not_read()
    assert_moved(server, box, target)


def test_live_migration_has_what_guests_read_brought_before(
    box: RunningBox, unseen: Template, instances: Instances
) -> None:
    """The target preloads what was read at the source: nobody has booted the image there."""
    source, target = box.hosts
    box.wait_planted(unseen.id)
    server = booted_on(instances, unseen, source)
    box.api.compute.live_migrate_server(server.id, host=target.name, block_migration=True)
    box.wait_host(server.id, target)
    server.wait()

    def is_brought() -> bool:
        jobs = {job["image"]: job for job in target.ask("preload.status") or []}
        job = jobs.get(unseen.id)
        return job is not None and job["what"] == "working-set" and job["state"] == "done"

    wait_for("what guests read", is_brought, 120, POLL_SECONDS)
    assert not server.could_not_read()


@pytest.mark.extended
@pytest.mark.disruptive
def test_evacuated_server_boots_its_image_anew(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """With its host gone, a server is made anew from its image on the other host."""
    source, target = box.hosts
    server = booted_on(instances, tiny, source)
    with box.host_lost(source):
        box.api.compute.evacuate_server(server.id)
        box.wait_host(server.id, target)
        # Since compute API 2.95 an evacuated server waits for its owner to start it.
        server.wait("SHUTOFF")
        box.api.compute.start_server(server.id)
        server.wait()
        # The instances' folders are not shared, so what it wrote is lost with its host.
        server.checked(boot=1)
        server.assert_on_link()
    box.wait_settled()
    assert_moved(server, box, target)
