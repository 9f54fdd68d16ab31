"""Versions as an ordinary user has them: taken, looked into, compared, booted."""

import datetime
import json
import pathlib
import secrets

import pytest

from testbed import exception
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.guest_console import GuestConsole
from testbed.fixtures.instances import FLAVOR, Instances
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.version_user import WAIT, VersionUser, written

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]


def test_server_is_looked_into_compared_and_brought_back(
    box: RunningBox, user: VersionUser, tiny: Template, instances: Instances, tmp_path: pathlib.Path
) -> None:
    """One file out of a version; what was damaged since; the server again once it is deleted."""
    server = instances.create(tiny)
    server.checked(boot=1)
    console = written(server, "all-is-well")
    before = user.take("before", "server", server.id)

    [disk] = user.ask("version", "browse", before, "--partitions")
    assert disk["Can Be Browsed"]
    names = [row["Name"] for row in user.ask("version", "browse", before, "/etc")]
    assert names == ["motd"]
    saved = tmp_path / "motd"
    user.run("version", "browse", before, "/etc/motd", "--file", str(saved))
    assert saved.read_text() == "all-is-well\n"

    console.run("echo broken >/guest/etc/motd; echo new >/guest/etc/new; rm /guest/boots; sync")
    after = user.take("after", "server", server.id)
    changes = {(row["Change"], row["Name"]) for row in _changes(user, after, before)}
    assert {("changed", "/etc/motd"), ("added", "/etc/new"), ("removed", "/boots")} <= changes

    box.api.delete_servers([server.id])
    listed = {row["ID"] for row in user.ask("version", "list", "--server", server.id)}
    assert listed == {before, after}
    booted = user.ask(
        "version", "boot", before, f"{box.test_name}-again", "--flavor", FLAVOR, "--wait", WAIT
    )
    again = instances.adopt(str(booted["id"]), tiny)
    box.delete_later(str(booted["image_id"]))
    again.checked(boot=2)
    assert GuestConsole(again.host, again.id).run("cat /guest/etc/motd").strip() == "all-is-well"


def _changes(user: VersionUser, version: str, against: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = user.ask("version", "diff", "--files", version, against)
    return found


def test_schedule_takes_versions_by_itself(
    user: VersionUser, tiny: Template, instances: Instances
) -> None:
    """A preview says what would stay; a version comes at the slot, and goes as any other."""
    server = instances.create(tiny)
    server.checked(boot=1)
    times = ("--every", "hour", "--at", _in(30), "--time-zone", "UTC", "--window", "0")
    made = user.ask("schedule", "create", "hourly", *times, "--keep-last", "2")
    try:
        user.run("schedule", "target", "add", "hourly", "--server", server.id)
        user.run("schedule", "set", "hourly", "--keep-last", "3")
        assert user.ask("schedule", "show", "hourly")["id"] == made["id"]
        user.ask("schedule", "preview", "hourly")
        slot = _in(2)
        user.api.update_schedule(made["id"], at=slot)
        while not _is_ahead(slot):  # it may have been over when it was set: then nothing comes
            slot = _in(2)
            user.api.update_schedule(made["id"], at=slot)
        version = user.ask("version", "show", user.first_version_of(server.id))
        assert version["trigger"] == "schedule"
        user.run("version", "delete", version["id"])
    finally:
        user.run("schedule", "delete", "hourly")


def _in(minutes: int) -> str:
    """Return a time of day, UTC, that is up to so many minutes ahead, and at most one less."""
    return f"{_now() + datetime.timedelta(minutes=minutes):%H:%M}"


def _is_ahead(time_of_day: str) -> bool:
    """Say whether a minute, at most two ahead when it was chosen, has not begun yet."""
    minute = int(time_of_day.partition(":")[2])
    return (minute - _now().minute) % 60 in (1, 2)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def test_version_is_taken_when_the_server_is_stopped(
    box: RunningBox, user: VersionUser, tiny: Template, instances: Instances
) -> None:
    """The server asks for it by its metadata; Nova's notification is what begins it."""
    server = instances.create(tiny)
    server.checked(boot=1)
    box.openstack("server", "set", "--property", "acstor:version_on=shutdown", server.id)
    box.openstack("server", "stop", server.id)
    server.wait("SHUTOFF")

    version = user.api.get_version(user.first_version_of(server.id))
    assert version.trigger == "shutdown"
    user.api.delete_version(version)


def test_stranger_finds_no_version(
    box: RunningBox, user: VersionUser, tiny: Template, instances: Instances
) -> None:
    """A version of another project is not there: neither its disk nor its files."""
    server = instances.create(tiny)
    server.checked(boot=1)
    version = user.take("mine", "server", server.id)
    stranger = f"stefan-{secrets.token_hex(4)}"
    with box.other_project(stranger):
        for arguments in (("show",), ("browse",), ("delete",), ("lock", "--reason", "mine")):
            with pytest.raises(exception.ToolFailedError, match="there is no version"):
                _as(stranger, box, "version", *arguments, version)
        assert json.loads(_as(stranger, box, "version", "list", "-f", "json")) == []


def _as(name: str, box: RunningBox, *arguments: str) -> str:
    """Run a command as a user of a project of the same name."""
    return box.openstack("acstor", *arguments, user=name, project=name)
