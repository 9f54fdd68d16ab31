"""Preloads with admission between real hosts, over a real broker."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.conditions import PATIENCE, wait_for
from testbed.fixtures.hosts import BIN, MIB, Cloud, Host, Image

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

BLOCK = 64 << 10
FULL = ("--full",)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("preload") / "broker") as running:
        yield running


def add_host(cloud: Cloud, broker: Broker) -> Host:
    """Start a host that hears the others; its link is 400 MB/s, of which half may be admitted."""
    host = Host(
        cloud,
        f"h{len(cloud.hosts)}",
        {
            "DEFAULT": {"transport_url": broker.url},
            "agent": {
                "interval": 0.2, "ring_settle_delay": 0.3, "ring_vnodes": 1024, "metrics_port": 0,
                "working_set_interval": 0.3, "state_interval": 0.5, "link_speed": 3200,
            },
            # Peers that are late because the machine is busy are not passed over for the origin.
            "readpath": {
                "load_aware": "false", "hedge_enabled": "false",
                "read_deadline": 60, "peer_deadline": 30,
            },
        },
    )  # fmt: skip
    cloud.hosts.append(host)
    host.start_dataplane()
    host.start_agent()
    return host


def preload(host: Host, image: Image, *arguments: str) -> tuple[int, Any, str]:
    """Run the command; return its exit status, table and stderr."""
    result = host.command("image", "preload", image.id, *arguments, "-f", "json", timeout=120)
    return result.returncode, json.loads(result.stdout or "null"), result.stderr


def begun(host: Host, image: Image, *arguments: str) -> "subprocess.Popen[str]":
    """Start the command and wait until its first line: then every host has admitted."""
    process = subprocess.Popen(
        [
            str(BIN / "acstor"), "--config-file", str(host.config), "image", "preload", image.id,
            *arguments,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("h0: "), first + process.stderr.read()
    return process


def told(host: Host, image: Image) -> dict[str, dict[str, Any]]:
    """Return what 'acstor preload show' tells, by host."""
    result = host.command("preload", "show", image.id, "-f", "json")
    rows = json.loads(result.stdout) if result.returncode == 0 else []
    return {row["Host"]: row for row in rows}


def state(host: Host, image: Image) -> object:
    return told(host, image).get(host.name, {}).get("State")


def is_listening(host: Host) -> bool:
    return "listening as" in host.log_path.read_text(errors="replace")


def ready(cloud: Cloud, image: Image) -> None:
    cloud.wait_ready(image)
    for host in cloud.hosts:
        is_there = functools.partial(is_listening, host)
        wait_for(f"{host.name} listens\n{host.log()}", is_there, 60)


def has_pinned(host: Host) -> bool:
    return all(image["pinned_bytes"] for image in host.ask("image.list") or [{"pinned_bytes": 0}])


def missing(host: Host, image: Image) -> int | None:
    found = host.ask("preload.estimate", image=image.id, what="full")
    return None if found is None else int(found["missing_bytes"])


def content_bytes(host: Host, image: Image) -> int:
    return int(host.ask("preload.estimate", image=image.id, what="full")["total_bytes"])


def origin_bytes(cloud: Cloud) -> float:
    return sum(host.metric("acstor_origin_bytes") for host in cloud.hosts)


def test_hosts_preload_together_and_the_origin_is_read_about_once(
    cloud: Cloud, broker: Broker
) -> None:
    hosts = [add_host(cloud, broker) for _ in range(4)]
    image = cloud.register(48 * MIB)
    ready(cloud, image)
    for host in hosts:
        wait_for(f"{host.name} has pinned", functools.partial(has_pinned, host), 60)
    before = origin_bytes(cloud)
    status, rows, progress = preload(hosts[0], image, "--all-hosts", *FULL, "--rate", "20MiB")
    assert status == 0, progress
    assert {row["Host"]: row["State"] for row in rows} == dict.fromkeys(
        ["h0", "h1", "h2", "h3"], "done"
    )
    assert "h2: done 100 %" in progress
    assert [missing(host, image) for host in hosts] == [0, 0, 0, 0]
    content = content_bytes(hosts[0], image)
    share, whole = (origin_bytes(cloud) - before) / content, origin_bytes(cloud) / content
    print(f"out of the origin for 4 hosts: {share:.3f} times the content, with pins {whole:.3f}")
    assert share < 1.1
    for host in hosts:
        assert host.file(image).read_bytes() == image.content


def test_preloaded_host_needs_no_origin(cloud: Cloud, broker: Broker) -> None:
    host = add_host(cloud, broker)
    image = cloud.register(16 * MIB)
    ready(cloud, image)
    assert preload(host, image, "--hosts", "h0", *FULL)[0] == 0
    before = origin_bytes(cloud)
    assert host.file(image).read_bytes() == image.content
    assert origin_bytes(cloud) == before


def test_what_boots_read_on_one_host_is_brought_to_another(cloud: Cloud, broker: Broker) -> None:
    first, second = add_host(cloud, broker), add_host(cloud, broker)
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    status, _, error = preload(second, image, "--hosts", "h1")
    assert status == 4, error
    assert "what boots of image" in error
    with first.file(image).open("rb", buffering=0) as boot:
        for offset in (0, 8 * MIB, 9 * MIB, 20 * MIB):
            assert os.pread(boot.fileno(), BLOCK, offset) == image.content[offset:][:BLOCK]

    def is_learnt() -> bool:
        found = second.ask("workingset.coverage")
        return bool(found) and found[0]["wanted_chunks"] >= 4

    wait_for("the second host to have learnt it", is_learnt)
    status, rows, error = preload(second, image, "--hosts", "h1", "--deadline", "10m")
    assert status == 0, error
    assert rows[0]["What"] == "working-set"
    assert rows[0]["Bytes"] < 4 * MIB, "a part of the image, not all of it"
    (covered,) = second.ask("workingset.coverage")
    assert covered["present_chunks"] == covered["wanted_chunks"]
    assert missing(second, image) != 0


def test_admitted_preload_that_cannot_be_kept_is_refused_with_what_would_do(
    cloud: Cloud, broker: Broker
) -> None:
    first, _ = add_host(cloud, broker), add_host(cloud, broker)
    image = cloud.register(64 * MIB)
    ready(cloud, image)
    # Minutes: on a busy machine each command below takes seconds.
    asked = ("--hosts", "h0,h1", *FULL, "--rate", "256KiB")
    status, _, error = preload(first, image, *asked, "--deadline", "5s")
    assert status == 3
    assert "h0: refused:" in error
    assert "h1: refused:" in error
    assert "2 of 2 hosts cannot admit it, nothing was begun" in error
    suggested = error.partition("--deadline ")[2].partition(" ")[0]
    assert 200 <= float(suggested.removesuffix("s")) <= 256
    assert told(first, image) == {}
    status, rows, error = preload(first, image, *asked, "--deadline", suggested, "--no-wait")
    assert status == 0, error
    assert {row["State"] for row in rows} <= {"waiting", "running", "yielding"}
    status, _, error = preload(first, image, "--hosts", "h0", *FULL)
    assert (status, "already" in error) == (3, True)
    status, _, error = preload(first, image, "--hosts", "h0,h7", *FULL)
    assert "h7: refused: it is no member" in error
    assert first.command("preload", "stop", image.id).returncode == 0
    assert {row["State"] for row in told(first, image).values()} == {"stopped"}
    status, _, error = preload(first, image, "--hosts", "h0", *FULL, "--rate", "1GiB")
    assert status == 3
    assert "--rate 200000000 would do" in error


def test_image_larger_than_the_chunk_store_is_refused(cloud: Cloud, broker: Broker) -> None:
    host = add_host(cloud, broker)
    image = cloud.register(320 * MIB)
    ready(cloud, image)
    status, _, error = preload(host, image, "--hosts", "h0", *FULL)
    assert status == 10, error
    assert "its chunk store has room for" in error


def test_admitted_preload_outlives_agent_and_data_plane(cloud: Cloud, broker: Broker) -> None:
    host = add_host(cloud, broker)
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    arguments = ("--hosts", "h0", *FULL, "--rate", "1MiB", "--deadline", "10m", "--no-wait")
    assert preload(host, image, *arguments)[0] == 0
    whole = content_bytes(host, image)
    wait_for("some of it", lambda: (missing(host, image) or whole) < whole * 0.97)
    host.kill("agent")
    killed = wait_for("a data plane", host.dataplane_pid)
    host.kill_dataplane()
    host.wait_restarted(killed)
    assert host.ask("preload.status") == [], "the job has gone with its process"
    left = missing(host, image)
    assert left, "nothing would be left to be resumed"
    assert left < whole, "what was brought is still there"
    host.start_agent()
    wait_for("the end", lambda: missing(host, image) == 0, 60)
    wait_for("the admitted preload", lambda: state(host, image) == "done")


def test_rate_is_held(cloud: Cloud, broker: Broker) -> None:
    host = add_host(cloud, broker)
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    whole, rate = missing(host, image) or 0, 4 * MIB
    started = time.monotonic()
    status, rows, error = preload(host, image, "--hosts", "h0", *FULL, "--rate", "4MiB")
    seconds = time.monotonic() - started
    assert status == 0, error
    assert rows[0]["Limit"] == rate
    assert seconds >= 0.9 * (whole - rate) / rate, "a second's worth may come at once"


def test_missed_deadline_is_reported(cloud: Cloud, broker: Broker) -> None:
    """The command ends with the deadline, the preload does not."""
    host = add_host(cloud, broker)
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    # Half a minute, in which this process has its turn before all is brought.
    seconds = (missing(host, image) or 0) / MIB + 1
    pid = wait_for("a data plane", host.dataplane_pid)
    arguments = ("--hosts", "h0", *FULL, "--rate", "1MiB", "--deadline", f"{seconds:.0f}s")
    with begun(host, image, *arguments) as process:
        os.kill(pid, signal.SIGSTOP)
        try:
            assert process.stderr is not None
            said = process.stderr.read()
            process.wait(60 * PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):  # if the holder was quicker
                os.kill(pid, signal.SIGCONT)
    assert process.returncode == 5, said
    assert "1 of 1 hosts have not completed it" in said
    assert "the deadline is over" in said
    wait_for("the end", lambda: state(host, image) == "missed", 60)
    assert missing(host, image) == 0


def test_interrupted_command_leaves_the_preload_running(cloud: Cloud, broker: Broker) -> None:
    host = add_host(cloud, broker)
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    # Minutes: on a busy machine each command below takes seconds.
    with begun(host, image, "--hosts", "h0", *FULL, "--rate", "128KiB") as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert f"acstor preload stop {image.id}" in said
    assert state(host, image) in {"running", "yielding"}
    assert host.command("preload", "stop", image.id).returncode == 0
    wait_for("the job's end", lambda: host.ask("preload.status")[0]["state"] == "stopped")
    assert missing(host, image)


def test_without_a_broker_the_error_says_what_to_set(cloud: Cloud) -> None:
    host = cloud.add_host(agent=False)
    result = host.command("preload", "list")
    assert result.returncode == 3
    assert "transport_url" in result.stderr
