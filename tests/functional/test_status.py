"""``acstor-status`` beside a data plane and an agent that run."""

import json
import subprocess
from typing import Any

import pytest
from oslo_upgradecheck.upgradecheck import Code

from testbed.fixtures.hosts import BIN, MIB, Cloud, Host

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(200)]

OF_WHAT_RUNS = (
    "Configuration values",
    "Configuration options",
    "Extension module",
    "Origin and repository format",
    "Ring format",
    "Coordination",
    "Agents of all hosts",
    "Chunk store format",
    "Take-over of the mount",
    "Running data plane",
)
"""Checks that must succeed on a host that is well, whatever else this machine lacks."""


def check(host: Host) -> dict[str, dict[str, Any]]:
    command = [str(BIN / "acstor-status"), "--config-file", str(host.config)]
    result = subprocess.run(
        [*command, "upgrade", "check", "--json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = {entry["check"]: entry for entry in json.loads(result.stdout)["checks"]}
    assert result.returncode == max(entry["result"] for entry in found.values())
    return found


def test_what_runs_is_of_formats_that_the_checks_read(cloud: Cloud) -> None:
    host = cloud.add_host(dataplane={"image_group": ""})
    cloud.wait_ready(cloud.register(2 * MIB))
    found = check(host)
    for name in OF_WHAT_RUNS:
        assert found[name]["result"] == Code.SUCCESS, found[name]
    assert found["FUSE access"]["result"] == Code.WARNING
    assert "every user of this host" in found["FUSE access"]["details"]
    assert found["Ring format"]["details"] == "generation 1, 1 hosts"
    assert f"process {host.dataplane_pid()}, " in found["Running data plane"]["details"]
    assert found["Take-over of the mount"]["details"] == "session version 1"
