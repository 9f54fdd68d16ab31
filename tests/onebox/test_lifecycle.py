"""The one-box itself: its commands, and that it repairs what was killed."""

import json
import os
import pathlib
import signal
import subprocess
from typing import Any

import pytest

from testbed.fixtures.one_box import RunningBox

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "onebox"

pytestmark = pytest.mark.root


def onebox(
    box: RunningBox, *arguments: str, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return subprocess.run(
        [str(TOOL), "--directory", str(box.directory.path), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def statuses(box: RunningBox) -> dict[tuple[str, str], dict[str, Any]]:
    """Return every service as the command tells it."""
    result = onebox(box, "status", "--format", "json")
    return {(entry["host"], entry["name"]): entry for entry in json.loads(result.stdout)}


def test_every_service_runs(box: RunningBox) -> None:
    result = onebox(box, "status")
    assert result.returncode == 0, result.stdout + result.stderr
    found = statuses(box)
    assert {host for host, _ in found} == {"controller", "compute1", "compute2"}
    for entry in found.values():
        assert entry["state"] == "running"
        assert pathlib.Path(entry["log"]).is_file()
        # The process is that of the service, as the machine numbers it.
        assert pathlib.Path(f"/proc/{entry['pid']}").exists(), entry


def test_up_again_changes_nothing(box: RunningBox) -> None:
    before = {key: entry["pid"] for key, entry in statuses(box).items()}
    result = onebox(box, "up")
    assert result.returncode == 0, result.stdout + result.stderr
    assert {key: entry["pid"] for key, entry in statuses(box).items()} == before


def test_commands_run_on_their_host_as_the_administrator(box: RunningBox) -> None:
    assert onebox(box, "exec", "--host", "compute2", "hostname").stdout == "compute2\n"
    result = onebox(box, "exec", "openstack", "project", "list", "-f", "value", "-c", "Name")
    assert {"admin", "service"} <= set(result.stdout.split()), result.stderr
    failed = onebox(box, "exec", "--host", "compute1", "false")
    assert failed.returncode == 1
    unknown = onebox(box, "exec", "--host", "compute9", "true")
    assert unknown.returncode != 0
    assert "the hosts are controller, compute1, compute2" in unknown.stderr


def test_images_are_asked_for_as_another_user(box: RunningBox) -> None:
    arguments = ["exec", "--as", "acstor", "--project", "service", "openstack", "image", "list"]
    result = onebox(box, *arguments, "-f", "value", "-c", "Name")
    assert "debian" in result.stdout.split(), result.stderr


def test_an_unknown_service_is_told_with_those_that_there_are(box: RunningBox) -> None:
    result = onebox(box, "restart", "nova-everything")
    assert result.returncode != 0
    assert "there is no service nova-everything" in result.stderr
    assert "nova-compute" in result.stderr


@pytest.mark.disruptive
def test_a_killed_service_is_told_and_up_repairs_it(box: RunningBox) -> None:
    key = ("controller", "memcached")
    before = statuses(box)[key]["pid"]
    os.kill(before, signal.SIGKILL)
    onebox(box, "stop", "memcached", "--host", "controller")  # waits until it has ended
    result = onebox(box, "status")
    assert result.returncode == 1
    assert statuses(box)[key]["state"] == "failed"
    result = onebox(box, "up")
    assert result.returncode == 0, result.stdout + result.stderr
    after = statuses(box)[key]
    assert after["state"] == "running"
    assert after["pid"] != before


@pytest.mark.extended
@pytest.mark.disruptive
def test_set_restarts_the_services_of_the_changed_file_only(box: RunningBox) -> None:
    key = ("compute2", "acstor-agent")
    path = box.directory.etc("compute2") / "acstor" / "acstor.conf"
    before = {found: entry["pid"] for found, entry in statuses(box).items()}
    text = path.read_text()
    assert "interval = 3\n" not in text
    try:
        result = onebox(box, "set", "--restart", "acstor:agent.interval=3")
        assert result.returncode == 0, result.stdout + result.stderr
        assert "interval = 3\n" in path.read_text()
        after = {found: entry["pid"] for found, entry in statuses(box).items()}
        changed = {found for found in before if before[found] != after[found]}
        assert key in changed
        assert {name for _, name in changed} == {"acstor-agent", "acstor-dataplane"}
    finally:
        result = onebox(box, "set", "--restart", "acstor:agent.interval=2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert path.read_text() == text
