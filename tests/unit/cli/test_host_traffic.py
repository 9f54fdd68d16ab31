"""What the commands show of the hosts' networks."""

import json
import pathlib

import pytest

from acstor.agent.member import Member
from acstor.agent.metrics import AgentMetrics
from acstor.agent.states import AgentState
from acstor.cli import host_traffic, samples
from acstor.cli.host_traffic import HostTraffic
from acstor.cli.samples import Sample
from acstor.metrics_endpoint import MetricsEndpoint
from tests.unit.cli.test_app import Run, deployed, run

__all__ = ("deployed", "run")  # fixtures


def metrics(extra_in: float | None = 1000.0, link: float | None = 125e6) -> AgentMetrics:
    found = AgentMetrics()
    found.set_state(AgentState.ACTIVE)
    found.set_traffic(extra_in, 2000.0, link)
    return found


def test_measurements_are_read_from_the_agents_metrics() -> None:
    sample = Sample(0.0, samples.parse(metrics().text()))
    assert host_traffic.read(sample) == HostTraffic("active", 1000.0, 2000.0, 125e6)


def test_what_the_agent_does_not_know_is_not_known() -> None:
    sample = Sample(0.0, samples.parse(metrics(None, None).text()))
    assert host_traffic.read(sample) == HostTraffic("active", None, 2000.0, None)
    assert host_traffic.read(Sample(0.0)) == HostTraffic()


def test_host_whose_metrics_are_local_to_it_is_not_mistaken_for_this_one() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0, text=metrics().text, is_healthy=lambda: True)
    endpoint.start()
    try:
        members = [Member(name, "10.0.0.1:1", endpoint.address, 0, "1") for name in ("h1", "h2")]
        found = host_traffic.fetch_all(members, "h1")
    finally:
        endpoint.stop()
    assert found["h1"].extra_in == 1000.0
    assert found["h2"] == HostTraffic(problem="[agent] metrics_address is local to that host")


@pytest.mark.parametrize("address", ["localhost:9471", "127.0.0.9:9471", "[::1]:9471"])
def test_loopback_addresses_of_others_are_not_asked(address: str) -> None:
    found = host_traffic.fetch_all([Member("h2", "10.0.0.2:1", address, 0, "1")], "h1")
    assert found["h2"].problem is not None
    assert "local to that host" in found["h2"].problem


def test_long_list_shows_what_the_hosts_measured(
    run: Run, deployed: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Sample(0.0, samples.parse(metrics(1.5 * (1 << 20)).text()))
    monkeypatch.setattr(samples, "fetch", lambda address: sample)
    status, out, _ = run("host", "list", "--long", "-f", "json")
    assert status == 0
    here, gone = json.loads(out)
    assert (here["Agent"], here["Extra in"], here["Link"]) == ("active", 1572864.0, 125e6)
    assert (gone["Agent"], gone["Extra in"]) == ("unknown", None)
    text = run("host", "list", "--long")[1]
    assert "1.5 MiB/s" in text
    assert "unknown" in text
    assert "Agent" not in run("host", "list")[1]
    shown = json.loads(run("host", "show", "h1", "-f", "json")[1])
    assert (shown["agent"], shown["extra_out"]) == ("active", 2000.0)


def test_agent_that_does_not_answer_is_shown_with_the_reason(run: Run, deployed: None) -> None:
    shown = json.loads(run("host", "show", "h1", "-f", "json")[1])
    assert "refused" in shown["agent"]
    assert shown["extra_in"] is None
