"""ACStor away, whole or in part: servers start the ordinary way, or go on."""

import functools
import os
import signal

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import Instance, Instances
from testbed.fixtures.one_box import RunningBox

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox, pytest.mark.disruptive,
]  # fmt: skip


@pytest.mark.extended
def test_acstor_stopped_before_create_nova_downloads(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """The link leads nowhere, so Nova downloads; ACStor back leaves Nova's own file alone."""
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    host = box.hosts[0]
    with box.without_acstor(host):
        assert host.base_kind(image.id) == "dangling"
        server = instances.create(image, host=host)
        server.checked(boot=1)
        server.assert_on_own_file()
        assert box.nova_downloads(image.id)
    other = box.fresh(tiny)
    box.wait_planted(other.id)  # the agent has had its look at everything
    assert host.base_kind(image.id) == "file"
    before = server.checked(boot=1)
    server.checked(after=before)
    box.api.compute.reboot_server(server.id, "HARD")
    server.checked(boot=2)
    server.wait()


def test_data_plane_killed_during_boot_guest_boots(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """The data plane dies when a guest has begun to read: the guest notices a pause at most."""
    host = box.hosts[0]
    reads = host.read_count()
    (server,) = instances.request(tiny, host=host)
    wait_for("the guest reads", lambda: host.read_count() > reads, 60)
    killed = host.dataplane_pid()
    os.kill(killed, signal.SIGKILL)
    wait_for("another one serves", functools.partial(serves_anew, host, killed), 60)
    server.wait()
    server.checked(boot=1)
    server.assert_on_link()
    assert not server.could_not_read()


def serves_anew(host: ComputeHost, killed: int) -> bool:
    return host.serves() and host.dataplane_pid() != killed


def test_acstor_stopped_during_boot_reboot_heals(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """All of it stopped under a booting guest: a hard reboot boots Nova's own copy."""
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    host = box.hosts[0]
    server = instances.create(image, host=host)
    with box.without_acstor(host):
        box.api.compute.reboot_server(server.id, "HARD")
        server.wait()
        server.checked()
        assert host.base_kind(image.id) == "file"
    reboot_and_check(box, server)


def reboot_and_check(box: RunningBox, server: Instance) -> None:
    before = server.checked()
    box.api.compute.reboot_server(server.id, "HARD")
    server.checked(boot=before.boot + 1)
    server.wait()


def test_acstor_restarted_under_running_guests(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Agents and data planes are replaced under guests that read: no guest sees an error."""
    servers = instances.request(tiny, count=2)
    before = []
    for server in servers:
        server.wait()
        before.append(server.checked(boot=1))
    for host in box.hosts:
        killed = host.dataplane_pid()
        host.kill("acstor-agent")
        os.kill(killed, signal.SIGKILL)
        host.start("acstor-agent")
        wait_for("another one serves", functools.partial(serves_anew, host, killed), 60)
    for server, earlier in zip(servers, before, strict=True):
        later = server.checked(after=earlier)
        server.checked(after=later)
        assert not server.could_not_read()


def test_cloud_without_any_acstor_service(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """No service of ours anywhere: create, cold migration and delete as in any cloud."""
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    source, target = box.hosts
    with box.without_acstor(*box.all_hosts):
        unseen = box.fresh(tiny)
        first = instances.create(image, host=source)
        second = instances.create(unseen, host=target)
        first.checked(boot=1)
        second.checked(boot=1)
        box.api.compute.migrate_server(first.id, host=target.name)
        first.wait("VERIFY_RESIZE")
        box.api.compute.confirm_server_resize(first.id)
        first.wait()
        first.checked(boot=2)
        first.assert_on_own_file()
        box.api.wait_deleted(instances.delete())
    # And back: what was uploaded meanwhile is found, what Nova has stays Nova's.
    box.wait_registry(unseen.id, {"registered"})
    box.wait_planted(unseen.id, [source])
    assert target.base_kind(unseen.id) == "file"
