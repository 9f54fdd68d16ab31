"""Traffic of the hosts' networks as the commands show it."""

import json
import pathlib

import pytest

from acstor.agent.metrics import PEERS_SHOWN_MAX, AgentMetrics
from acstor.agent.states import AgentState
from acstor.cli import host_traffic, samples
from acstor.cli.columns import Disk
from acstor.cli.host_traffic import HostTraffic
from acstor.cli.samples import Sample
from acstor.cluster.member import Member
from acstor.http_server.metrics import MetricsEndpoint
from acstor.telemetry.data_plane_readings import DataPlaneLoad
from acstor.telemetry.host_state_details import DiskHealth, PeerLatency, disk_to_message
from tests.unit.cli.test_app import Run, deployed, run

__all__ = ("deployed", "run")  # fixtures

PEERS = {
    "h7": PeerLatency(0.5, 12.25), "h3": PeerLatency(2.0, 250.0), "h9": PeerLatency(0.25, 1.5),
}  # fmt: skip
"""Peers as a data plane lists them, the one fetched most from first."""


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
    monkeypatch.setattr(samples, "fetch", lambda address, tls: sample)
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


def loaded(
    disk: DiskHealth | None = None, peers: dict[str, PeerLatency] | None = None
) -> AgentMetrics:
    found = metrics()
    found.set_load(
        DataPlaneLoad(
            0.5, disk or DiskHealth(is_healthy=True), peers=PEERS if peers is None else peers
        )
    )
    return found


def read(found: AgentMetrics) -> HostTraffic:
    return host_traffic.read(Sample(0.0, samples.parse(found.text())))


def test_disk_and_peers_are_read_from_the_agents_metrics() -> None:
    found = read(loaded(DiskHealth(is_healthy=False, wear=0.25)))
    assert found.disk == DiskHealth(is_healthy=False, wear=0.25)
    assert list(found.peers) == ["h3", "h7", "h9"], "the slowest first"
    for name, latency in PEERS.items():
        assert found.peers[name].p50_ms == pytest.approx(latency.p50_ms)
        assert found.peers[name].p99_ms == pytest.approx(latency.p99_ms)


def test_peers_fetched_most_from_are_told_only() -> None:
    many = {f"x{number:02}": PeerLatency(1.0, float(number)) for number in range(64)}
    assert set(read(loaded(peers=many)).peers) == set(list(many)[:PEERS_SHOWN_MAX])


def test_data_plane_that_is_away_leaves_no_peers_behind() -> None:
    found = loaded(DiskHealth(is_healthy=True, wear=0.1))
    found.set_load(None)
    assert (read(found).disk, read(found).peers) == (None, {})


def test_peer_of_which_half_is_told_is_left_out() -> None:
    text = 'acstor_agent_peer_latency_seconds{peer="h2",quantile="0.5"} 0.001\n'
    assert host_traffic.read(Sample(0.0, samples.parse(text))).peers == {}


def test_commands_show_disk_and_peers(
    run: Run, deployed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = loaded(DiskHealth(is_healthy=True, wear=0.125)).text()
    monkeypatch.setattr(samples, "fetch", lambda address, tls: Sample(0.0, samples.parse(text)))
    shown = json.loads(run("host", "show", "h1", "-f", "json")[1])
    assert shown["disk"] == {"is_healthy": True, "wear": 0.125}
    assert shown["peers"] == [
        {"name": "h3", "p50_ms": 2.0, "p99_ms": 250.0},
        {"name": "h7", "p50_ms": 0.5, "p99_ms": 12.25},
        {"name": "h9", "p50_ms": 0.25, "p99_ms": 1.5},
    ]
    table = run("host", "show", "h1")[1]
    assert "well, 12 % worn" in table
    assert "h3 2.0/250.0 ms" in table
    here, gone = json.loads(run("host", "list", "--long", "-f", "json")[1])
    assert here["Disk"] == {"is_healthy": True, "wear": 0.125}
    assert here["Slowest peer"] == shown["peers"][:1]
    assert (gone["Disk"], gone["Slowest peer"]) == (None, [])
    listed = run("host", "list", "--long")[1]
    assert "h3 2.0/250.0 ms" in listed
    assert "h7 0.5" not in listed


@pytest.mark.parametrize(
    ("disk", "text"),
    [
        (None, "unknown"),
        (DiskHealth(is_healthy=True), "well"),
        (DiskHealth(is_healthy=False, wear=1.0), "failing, 100 % worn"),
    ],
)
def test_disk_is_put_in_words(disk: DiskHealth | None, text: str) -> None:
    assert Disk(disk_to_message(disk)).human_readable() == text
