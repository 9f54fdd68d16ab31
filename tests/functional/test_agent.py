"""Agents, data planes and the command line of several hosts together."""

import json
import os
import pathlib
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest

from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import BIN, MIB, Cloud, Host

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

MEMBERS = {"heartbeat_interval": 0.2, "member_timeout": 3}


def ring_names(host: Host) -> list[str]:
    ring = host.ask("ring.show")
    if not isinstance(ring, dict):
        return []
    return [found["name"] for found in ring["hosts"] if found["vnodes"]]


def shown(host: Host, *arguments: str) -> Any:
    result = host.command(*arguments, "-f", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def coordination(cloud: Cloud) -> dict[str, object]:
    return {"backend_url": f"file://{cloud.path}/coordination", **MEMBERS}


def test_hosts_that_come_and_go_change_the_ring(cloud: Cloud) -> None:
    first = cloud.add_host(coordination=coordination(cloud))
    wait_for("a ring of one", lambda: ring_names(first) == ["h0"])
    second = cloud.add_host(coordination=coordination(cloud))
    wait_for("a ring of two", lambda: ring_names(first) == ring_names(second) == ["h0", "h1"])
    second.vanish()
    wait_for("a ring of one again", lambda: ring_names(first) == ["h0"], timeout=60)

    def serves() -> bool:
        # One that stands still for longer than its timeout is missing until it beats again.
        return [row["State"] for row in shown(first, "host", "list")][:1] == ["serving"]

    wait_for("it serves", serves, interval=0.5)


def test_drained_host_owns_nothing_and_its_guests_go_on(cloud: Cloud) -> None:
    first, second = cloud.add_host(), cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    with CheckedReader(second.file(image), image.content, seed=20) as reader:
        reader.wait_reads(20)
        assert first.command("host", "drain", "h1").returncode == 0
        wait_for("a ring without h1", lambda: ring_names(first) == ring_names(second) == ["h0"])
        assert shown(first, "host", "show", "h1")["state"] == "draining"
        reader.wait_reads(20)
        assert first.command("host", "undrain", "h1").returncode == 0
        wait_for("h1 is back", lambda: ring_names(first) == ["h0", "h1"])
    assert reader.errors == []


def test_restarted_agent_changes_no_ring(cloud: Cloud) -> None:
    first, second = cloud.add_host(), cloud.add_host()
    wait_for("a ring of two", lambda: ring_names(first) == ring_names(second) == ["h0", "h1"])
    generation = first.ask("ring.show")["generation"]
    for number in (signal.SIGKILL, signal.SIGTERM):
        agent = second._processes["agent"]
        agent.send_signal(number)
        agent.wait(60)
        second.start_agent()
        wait_for("the agent is back", lambda: metrics_address(second))
    image = cloud.register(1 * MIB)
    cloud.wait_ready(image)
    assert first.ask("ring.show")["generation"] == generation


def metrics_address(host: Host) -> str | None:
    lines = host.log_path.read_text(errors="replace").splitlines()
    found = [line.rpartition("http://")[2] for line in lines if "metrics at http://" in line]
    alive = host._processes["agent"].poll() is None
    return found[-1].removesuffix("/metrics") if found and alive else None


def test_metrics_of_agent_and_data_plane_are_at_one_address(cloud: Cloud) -> None:
    host = cloud.add_host()
    image = cloud.register(1 * MIB)
    cloud.wait_ready(image)
    address = wait_for("an endpoint", lambda: metrics_address(host))
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert "acstor_agent_members 1.0" in text
    assert "acstor_reads_total" in text
    assert text.count("# EOF") == 1

    def is_healthy() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/healthz", timeout=60) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return False  # not yet

    wait_for("health", is_healthy)


def test_top_and_trace_tell_what_a_reader_did(cloud: Cloud) -> None:
    host = cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    assert host.command("trace", "start", image.id).returncode == 0
    with CheckedReader(host.file(image), image.content, seed=21) as reader:
        reader.wait_reads(20)

        def busy() -> Any:
            # The reader may stand still for all of the interval.
            (found,) = shown(host, "top", "--once", "--interval", "0.5")
            return found if found["reads_per_s"] else None

        row = wait_for("reads in an interval", busy, interval=0.1)
        reader.wait_reads(20)
    assert row["host"] == "h0"
    assert row["reads_per_s"] > 0
    assert row["local"] + row["peer"] + row["origin"] == pytest.approx(1, abs=0.01)
    entries = shown(host, "trace", "show", image.id)
    assert {entry["Tier"] for entry in entries} <= {
        "zero", "recent", "store", "peer", "previous_owner", "origin",
    }  # fmt: skip
    assert len(entries) > 20
    reads = shown(host, "trace", "show", image.id, "--reads")
    assert len(reads) > 20
    assert all(0 <= read["Offset"] < 16 * MIB for read in reads)
    assert host.command("trace", "stop", image.id).returncode == 0


def test_removed_image_vanishes_when_nobody_uses_it(cloud: Cloud) -> None:
    host = cloud.add_host()
    image = cloud.register(1 * MIB)
    cloud.wait_ready(image)
    opened = os.open(host.file(image), os.O_RDONLY)
    try:
        assert host.command("image", "remove", image.id, "--force").returncode == 0
        wait_for("the image is not listed", lambda: not os.listdir(host.mount))
        assert os.pread(opened, 4096, 0) == image.content[:4096]
    finally:
        os.close(opened)
    wait_for("the image is gone", lambda: host.ask("image.list") == [])


def test_data_plane_status_is_plain_json(cloud: Cloud) -> None:
    host = cloud.add_host(agent=False)
    status = shown(host, "dataplane", "status")
    assert status["process_state"] == "serving"
    assert status["store"]["capacity_bytes"] > 0


def test_latency_of_peers_is_in_the_status(cloud: Cloud) -> None:
    # A machine that is busy with other tests is no slow link, and no peer that fails.
    patient = {"slow_fetch": 60.0, "load_aware": "false", "hedge_enabled": "false"}
    first, second = cloud.add_host(readpath=patient), cloud.add_host(readpath=patient)
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    wait_for("a ring of two", lambda: ring_names(first) == ring_names(second) == ["h0", "h1"])
    assert pathlib.Path(first.file(image)).read_bytes() == image.content
    (peer,) = shown(first, "dataplane", "status")["peers"]
    assert peer["name"] == "h1"
    assert peer["fetches"] > 20
    assert 0 < peer["p50_ms"] <= peer["p99_ms"]
    metrics = str(first.ask("metrics"))
    assert "acstor_peer_compression_welcomed_total 0\n" in metrics
    assert "acstor_peer_client_compressed_chunks_total 0\n" in metrics
    assert 'acstor_peer_server_compressions_total{outcome="compressed"} 0\n' in metrics
    people = first.command("dataplane", "status")
    assert "name=h1" in people.stdout


def test_second_data_plane_on_one_host_is_refused(cloud: Cloud) -> None:
    host = cloud.add_host(agent=False)
    result = subprocess.run(
        [str(BIN / "acstor-dataplane"), "--config-file", str(host.config)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 5
    assert "setting up the data plane" in result.stdout
    assert host.status() is not None
    assert pathlib.Path(host.mount).is_mount()
