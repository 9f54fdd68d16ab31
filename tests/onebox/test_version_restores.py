"""Versions that an ordinary user puts back into the server or volume that they are of."""

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.guest_console import GuestConsole
from testbed.fixtures.instances import Instances
from testbed.fixtures.version_user import WAIT, VersionUser, written
from testbed.fixtures.volumes import Volumes

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


@pytest.mark.parametrize("method", ["rebuild", "in-place", "auto"])
def test_server_is_put_back(
    user: VersionUser, tiny: Template, instances: Instances, method: str
) -> None:
    """The same server, with the disk of a version; what it had before is a version, too."""
    server = instances.create(tiny)
    server.checked(boot=1)
    console = written(server, "all-is-well")
    before = user.take("before", "server", server.id)
    console.run("echo broken >/guest/etc/motd; sync")
    chosen = ("--server", server.id, "--method", method)
    user.run("version", "restore", before, *chosen, "--wait", WAIT)
    server.wait()
    server.checked(boot=2)
    text = GuestConsole(server.host, server.id).run("cat /guest/etc/motd")
    assert text.strip() == "all-is-well"
    for version in list(user.api.versions(server_id=server.id)):
        if version.id != before:
            saved = user.run("version", "browse", version.id, "/etc/motd", "--file", "-")
            assert saved == "broken\n"
            user.api.delete_version(version)


def test_volume_is_put_back(
    user: VersionUser, volumes: Volumes, tiny: Template, instances: Instances
) -> None:
    """Any version, not only the latest; what the volume had before is a version, too."""
    server = instances.create(tiny)
    server.checked(boot=1)
    volume_id = volumes.create()
    with volumes.attached(server, volume_id) as disk:
        disk.write("first")
        first = user.take("first", "volume", volume_id)
        disk.write("second")
        user.take("second", "volume", volume_id)
        disk.write("third")
    user.run("version", "restore", first, "--volume", volume_id, "--wait", WAIT)
    with volumes.attached(server, volume_id) as disk:
        assert disk.holds("first")
    names = {version.name for version in user.api.versions(volume_id=volume_id)}
    assert {"first", "second"} <= names
    for version in list(user.api.versions(volume_id=volume_id)):
        if version.name not in ("first", "second"):
            user.api.delete_version(version)
