"""Faults of the policy service: guests do not notice, and every byte is compared meanwhile."""

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from acstor.cluster.ring.decision import (
    DECISION_REF,
    Decision,
    PublishedDecision,
    read_decision,
    replace_decision,
)
from acstor.origin.posix import PosixOrigin
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import BIN, MIB, Cloud, Host

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

READS = {"keep": "never"}
"""Every read of a chunk that a peer owns asks the peer again."""
POLICY = {"interval": 0.3, "metrics_port": 0}

StartPolicy = Callable[[Host], subprocess.Popen[bytes]]


@pytest.fixture
def start_policy() -> Iterator[StartPolicy]:
    started: list[subprocess.Popen[bytes]] = []

    def start(host: Host) -> subprocess.Popen[bytes]:
        with host.log_path.open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / "acstor-policy"), "--config-file", str(host.config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(20)


def shares(host: Host) -> dict[str, float]:
    """Return what part of the ring that a host uses each host owns."""
    ring = host.ask("ring.show") or {"hosts": []}
    owned = {each["name"]: each["vnodes"] for each in ring["hosts"]}
    total = sum(owned.values()) or 1
    return {name: vnodes / total for name, vnodes in owned.items()}


def wait_share(hosts: list[Host], name: str, lowest: float, highest: float) -> None:
    for host in hosts:
        wait_for(
            f"{host.name} gives {name} {lowest} to {highest} of the ring\n{host.log()}",
            lambda host=host: lowest <= shares(host).get(name, 0.0) <= highest,  # type: ignore[misc]
            60,
        )


def test_policy_killed_hosts_come_and_reads_go_on(cloud: Cloud, start_policy: StartPolicy) -> None:
    first = cloud.add_host(readpath=READS, policy=POLICY)
    second = cloud.add_host(readpath=READS, policy=POLICY)
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    policy = start_policy(first)
    with CheckedReader(first.file(image), image.content, seed=1) as reader:
        assert first.command("policy", "pin", "h0", "--weight", "25%").returncode == 0
        wait_share([first, second], "h0", 0.18, 0.22)
        reader.wait_reads(50)
        policy.kill()
        policy.wait(20)
        third = cloud.add_host(readpath=READS, policy=POLICY)
        # 0.25 of three hosts, of which the new one has the mean of the others.
        wait_share([first, second, third], "h0", 0.10, 0.16)
        reader.wait_reads(50)
        again = start_policy(second)  # with a state of its own: what it needs is in the origin
        assert first.command("policy", "unpin", "h0").returncode == 0
        assert first.command("policy", "pin", "h1", "--weight", "25%").returncode == 0
        # Nothing is heard of h0, so it keeps its weight; h2 has the mean of 2500 and 10000.
        wait_share([first, second, third], "h1", 0.20, 0.24)
        reader.wait_reads(50)
        assert again.poll() is None
    assert reader.errors == []


def test_decisions_in_a_hurry_damaged_and_missed_reads_go_on(cloud: Cloud) -> None:
    hosts = [cloud.add_host(readpath=READS) for _ in range(3)]
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    origin = PosixOrigin(str(cloud.origin))
    chance = random.Random(1)
    in_force: PublishedDecision | None = None

    def decide(weights: dict[str, int], threshold: int | None = None) -> PublishedDecision:
        sequence = in_force.decision.sequence + 1 if in_force else 1
        decision = Decision(1, sequence, "test", 0, "test", weights, threshold)
        return replace_decision(origin, in_force, decision)

    with CheckedReader(hosts[0].file(image), image.content, seed=2) as reader:
        sleeping = hosts[2]._processes["agent"].pid
        os.kill(sleeping, signal.SIGSTOP)
        try:
            for _ in range(10):
                in_force = decide({host.name: chance.randrange(500, 40_000) for host in hosts})
                reader.wait_reads(20)
            in_force = decide({"h0": 1000, "h1": 10_000, "h2": 10_000}, threshold=3)
            wait_share(hosts[:1], "h0", 0.03, 0.07)
        finally:
            os.kill(sleeping, signal.SIGCONT)
        wait_share(hosts, "h0", 0.03, 0.07)  # who missed generations uses the newest
        for host in hosts:
            wait_for(
                "the threshold",
                lambda host=host: (host.status() or {}).get("distance_threshold") == 3,  # type: ignore[misc]
                60,
            )
        origin.swap_ref(DECISION_REF, in_force.token, b"{")
        wait_for(
            "the damage is told",
            lambda: "decision is malformed" in hosts[0].log_path.read_text(),
            60,
        )
        reader.wait_reads(50)
        wait_share(hosts, "h0", 0.03, 0.07)
        ref = origin.get_ref(DECISION_REF)
        assert ref is not None
        origin.swap_ref(DECISION_REF, ref.token, None)  # the operator wants no decision
        wait_share(hosts, "h0", 0.32, 0.35)
        for host in hosts:
            wait_for(
                "no threshold",
                lambda host=host: (
                    (host.status() or {"distance_threshold": 0})["distance_threshold"]  # type: ignore[misc]
                    is None
                ),
                60,
            )
        reader.wait_reads(50)
    assert reader.errors == []
    assert read_decision(origin) is None
