"""The evaluation as a command: real hosts, real packets, real agents and policy, few of each."""

import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from pyroute2 import netns
from rich.console import Console

from bench.acstor import congestion_control
from bench.acstor.report import Report
from bench.quickstart import many_hosts
from bench.quickstart.live import StormView
from testbed.exception import TestbedError
from testbed.fixtures.conditions import wait_for
from testbed.rates import LinkRate
from testbed.testbed import Testbed, TestbedSettings

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root"),
]
ROOT = pathlib.Path(__file__).parents[2]
GUESTS = 8


@pytest.fixture
def root() -> Iterator[pathlib.Path]:
    """A directory whose path is short enough for sockets below it."""
    with tempfile.TemporaryDirectory(prefix="ev-") as path:
        yield pathlib.Path(path)


def wait_removed(before: set[str]) -> None:
    """Wait until no namespace is left of those that were made since; tests beside this have some.

    :param before: names of the namespaces that were there.
    """
    made = set(netns.listnetns()) - before
    wait_for("they are removed", lambda: not made & set(netns.listnetns()), timeout=300)


def test_one_command_boots_guests_with_every_approach(
    tmp_path: pathlib.Path, root: pathlib.Path, pytestconfig: pytest.Config
) -> None:
    """Replays check every byte, so a guest that booted has read what its image holds.

    That the traffic beside them was what was asked for is for an idle machine: ``--extended``.
    """
    before = set(netns.listnetns())
    path, plot = tmp_path / "report.json", tmp_path / "plot.svg"
    command = [
        sys.executable,
        "-m",
        "bench.acstor",
        "figure-6",
        "--hosts",
        "4",
        "--rate",
        "100mbit",
    ]
    command += ["--guests-per-host", "2", "--images", "2", "--reads", "60", "--stagger", "0.1"]
    command += ["--think-scale", "0.1", "--cv", "0.5", "--mean", "130", "--interval", "0.5"]
    command += ["--warm-up", "5", "--deadline", "60", "--generated", "--seed", "2"]
    command += ["--root", str(root)]
    command += ["--json", str(path), "--plot", str(plot), "--format", "json"]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    rows = json.loads(run.stdout)["rows"]
    assert [row["approach"] for row in rows] == [
        "non-cache", "local-cache", "static-collaborative", "acstor",
    ]  # fmt: skip
    assert "<svg" in plot.read_text()
    storms = {entry.storm.approach: entry.storm for entry in Report.load(path).entries}
    for name, storm in storms.items():
        assert len(storm.guests) == GUESTS
        assert storm.failed == 0, [guest.failure for guest in storm.guests]
        assert all(guest.bytes_read > 1_000_000 for guest in storm.guests)
        traffic = storm.traffic
        assert traffic is not None
        assert traffic.mean_bytes_per_s == pytest.approx(13e6)
        assert traffic.cv == pytest.approx(0.5, abs=1e-3)
        if pytestconfig.getoption("extended"):
            # The interfaces count one header for several frames.
            assert 0.8 * 13e6 < traffic.measured_mean_bytes_per_s < 1.1 * 13e6, name
            assert traffic.measured_cv == pytest.approx(0.5, abs=0.1), name
    assert storms["local-cache"].origin_bytes > 1.3 * storms["acstor"].origin_bytes
    acstor = storms["acstor"]
    assert acstor.control is not None
    assert acstor.control["states"] >= 6
    assert acstor.decisions, "a host's link is full: the policy must have noticed"
    assert acstor.generations, "and the ring must have changed"
    for generation in acstor.generations:
        assert generation.moved_share <= 1.01 * generation.least_moved_share + 1e-3
    wait_removed(before)
    assert list(root.iterdir()) == []


def test_hosts_have_the_congestion_control_that_was_chosen(root: pathlib.Path) -> None:
    rate = LinkRate(100_000_000)
    own = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
    with Testbed.create(TestbedSettings(2, rate, rate), root) as testbed:
        members = list(testbed.network.members.values())
        congestion_control.choose(members, "cubic")
        assert [congestion_control.of(member) for member in members] == ["cubic"] * 3
        with pytest.raises(TestbedError, match="'none-such'") as found:
            congestion_control.choose(members, "none-such")
        assert "cubic" in found.value.hint
    assert pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == own


def test_storm_of_the_quickstart_has_a_line_for_each_host(root: pathlib.Path) -> None:
    before = set(netns.listnetns())
    rate = LinkRate.parse("100mbit")
    settings = dataclasses.replace(
        many_hosts.settings_of(3, rate, root), reads=40, warm_up=1.0, is_content_generated=True
    )
    output = io.StringIO()
    view = StormView(Console(file=output, width=100))
    report = many_hosts.run(settings, ["acstor"], view)
    assert report.is_complete, (report.failures, output.getvalue())
    assert [host.name for host in report.hosts()] == ["h0", "h1", "h2"]
    assert all(host.boot_s["acstor"] for host in report.hosts())
    traffic = report.storms["acstor"].traffic
    assert traffic is not None
    assert traffic.mean_bytes_per_s == pytest.approx(4 * 0.9 * rate.bytes_per_s / 3)
    wait_removed(before)
