"""Servers that move between real hosts, over a real broker; Nova's part is played by the test."""

import functools
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from acstor.conf import loading
from acstor.control.chunk_set import ChunkSet
from acstor.control.hand_over import HandOverRequest, MoveKind
from acstor.origin.opening import open_origin
from acstor.repository.images import working_set
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

BLOCK = 64 << 10
"""Size of a chunk, bytes."""
CALL_TIMEOUT = 30.0
READ = (0, 8 * MIB, 9 * MIB, 20 * MIB)
"""Offsets that the guest reads at the source."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("hand-over") / "broker") as running:
        yield running


def add_host(cloud: Cloud, broker: Broker, **options: Mapping[str, object]) -> Host:
    """Start a host that hears the others, and reports what boots read when the test says so."""
    agent = {
        "interval": 0.2, "ring_settle_delay": 0.3, "ring_vnodes": 1024, "metrics_port": 0,
        "ring_shrink_interval": 0, "working_set_interval": 3600,
    }  # fmt: skip
    groups: dict[str, Mapping[str, object]] = {
        "DEFAULT": {"transport_url": broker.url},
        "readpath": {
            "load_aware": "false", "hedge_enabled": "false",
            "read_deadline": 60, "peer_deadline": 30,
        },
        **options,
        "agent": {**agent, **options.get("agent", {})},
    }  # fmt: skip
    host = Host(cloud, f"h{len(cloud.hosts)}", groups)
    cloud.hosts.append(host)
    host.start_dataplane()
    host.start_agent()
    return host


def is_listening(host: Host) -> bool:
    return "listening as" in host.log_path.read_text(errors="replace")


def ready(cloud: Cloud, image: Image) -> None:
    cloud.wait_ready(image)
    for host in cloud.hosts:
        is_there = functools.partial(is_listening, host)
        wait_for(f"{host.name} listens\n{host.log()}", is_there, 60)


def boot(host: Host, image: Image) -> None:
    """Read what a guest reads."""
    with host.file(image).open("rb", buffering=0) as disk:
        for offset in READ:
            assert os.pread(disk.fileno(), BLOCK, offset) == image.content[offset:][:BLOCK]


def call(host: Host, method: str, **arguments: object) -> Any:
    """Call the host's agent, as the registrar does."""
    conf = loading.load("test", ["--config-file", str(host.config)])
    with transport.opened(conf) as opened:
        return AgentClient(opened, CALL_TIMEOUT).call(host.name, method, **arguments)


def moved(image: Image, kind: MoveKind = MoveKind.LIVE) -> HandOverRequest:
    return HandOverRequest(str(uuid.uuid4()), kind, "h0", (image.id,))


def is_covered(host: Host, image: Image, chunks: int) -> bool:
    """Return whether the host has all of a working set of so many chunks."""
    for found in host.ask("workingset.coverage") or []:
        if found["image"] == image.id:
            is_whole = found["present_chunks"] == found["wanted_chunks"]
            return bool(is_whole and found["wanted_chunks"] >= chunks)
    return False


def is_reported(cloud: Cloud, image: Image) -> bool:
    """Return whether the origin knows what the guest read."""
    found = working_set.read(open_origin(cloud.origin_url, 5), image.id)
    return found is not None and found.wanted_count >= len(READ)


def missing(host: Host, image: Image) -> int:
    return int(host.ask("preload.estimate", image=image.id, what="full")["missing_bytes"])


def test_server_that_moves_finds_what_it_read_before(cloud: Cloud, broker: Broker) -> None:
    source, target = add_host(cloud, broker), add_host(cloud, broker)
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    boot(source, image)
    assert not is_covered(target, image, len(READ))
    request = moved(image)
    assert call(target, "hand_over_start", **request.to_arguments()) == {"accepted": True}
    wait_for("what the guest read", lambda: is_covered(target, image, len(READ)), 60)
    told = target.ask("image.held", image=image.id)
    held = set(ChunkSet.decode(told["bitmap"], told["chunk_count"]))
    assert held >= {offset // BLOCK for offset in READ}
    boot(target, image)
    assert missing(target, image) > 8 * MIB, "a part of the image, not all of it"


def test_move_that_fails_stops_the_preload(cloud: Cloud, broker: Broker) -> None:
    source = add_host(cloud, broker)
    target = add_host(cloud, broker, preload={"rate": 64 << 10})
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    source.file(image).read_bytes()
    request = moved(image)
    call(target, "hand_over_start", **request.to_arguments())

    def states() -> list[str]:
        return [str(job["state"]) for job in target.ask("preload.status") or []]

    wait_for("the preload", lambda: set(states()) & {"running", "yielding"}, 60)
    assert call(target, "hand_over_stop", instance=request.instance) == {"known": True}
    wait_for("its end", lambda: states() == ["stopped"], 60)
    assert missing(target, image) > 0


def test_evacuated_server_finds_what_its_host_had_reported(cloud: Cloud, broker: Broker) -> None:
    source = add_host(cloud, broker, agent={"working_set_interval": 0.3})
    target = add_host(cloud, broker)
    image = cloud.register(32 * MIB)
    ready(cloud, image)
    boot(source, image)
    wait_for("the report", lambda: is_reported(cloud, image), 60)
    source.vanish()
    target.kill("agent")
    target.start_agent()  # which learns at once
    wait_for("it listens", lambda: target.log_path.read_text().count("listening as") >= 2, 60)
    request = moved(image, MoveKind.EVACUATION)
    assert call(target, "hand_over_start", **request.to_arguments()) == {"accepted": True}
    wait_for("what the guest read", lambda: is_covered(target, image, len(READ)), 120)


def test_host_may_take_no_part(cloud: Cloud, broker: Broker) -> None:
    source = add_host(cloud, broker)
    target = add_host(cloud, broker, agent={"hand_over_warm_sets": "false"})
    image = cloud.register(8 * MIB)
    ready(cloud, image)
    source.file(image).read_bytes()
    answer = call(target, "hand_over_start", **moved(image).to_arguments())
    assert answer == {"accepted": False}
