"""Leaders that die while they decide, hosts that lie, a broker that goes: reads go on."""

import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from acstor.conf import loading
from acstor.rpc import transport
from acstor.telemetry import host_states
from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import Host, Image
from testbed.fixtures.policy_deployment import PolicyDeployment, policy_deployment

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

INTERVAL = 1.0
BUSY = 0.95


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("hosts") / "broker") as running:
        yield running


@pytest.fixture
def deployment(tmp_path: pathlib.Path, broker: Broker) -> Iterator[PolicyDeployment]:
    with policy_deployment(tmp_path, broker, INTERVAL, quiet_period=3) as found:
        yield found


def start_deadly(
    deployment: PolicyDeployment, host: Host, write: int, moment: str
) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "tests.probe.policy_worker", str(write), moment]
    return deployment.start_policy(host, program=program)


@pytest.mark.parametrize("moment", ["killed-before", "killed-after"])
def test_leader_ends_between_deciding_and_writing(
    deployment: PolicyDeployment, moment: str
) -> None:
    image = deployment.start(2, policies=0)
    first, second = deployment.cloud.hosts
    deadly = start_deadly(deployment, first, 2, moment)
    wait_for("it leads", lambda: deployment.leads("h0"))
    with CheckedReader(first.file(image), image.content, seed=1) as reader:
        before = deployment.in_force()
        assert before is not None
        deployment.links[1].share = BUSY
        wait_for(f"the leader is {moment}", lambda: deadly.poll() is not None)
        found = deployment.in_force()
        assert found is not None
        assert (found == before) == (moment != "killed-after"), "the write is whole or not at all"
        deployment.start_policy(second)  # earlier it might lead before this has looked
        wait_for(f"another leads\n{second.log()}", lambda: deployment.leads("h1"))
        deployment.wait_shares(1, 0.0, 0.25)  # what the first one was about to do
        reader.wait_reads(20)
    assert reader.errors == []


def lie(deployment: PolicyDeployment, host: str, **lies: Any) -> None:
    """Say something of a host on the bus that no agent says."""
    conf = loading.load("test", ["--config-file", str(deployment.cloud.hosts[0].config)])
    fields = {
        "version": 1, "host": host, "sequence": int(time.time() * 1000), "release": "1",
        "is_up": True, "is_draining": False, "extra_in": 0.0, "extra_out": 0.0,
        "link_bytes_per_s": 1.25e6, "coverage": {}, "images": [], **lies,
    }  # fmt: skip
    with transport.opened(conf) as opened:
        client = host_states._client(opened)
        client.cast({}, "host_state", state=fields)


def test_hosts_that_lie_and_a_broker_that_goes(
    deployment: PolicyDeployment, broker: Broker
) -> None:
    image: Image = deployment.start(3)
    hosts = deployment.cloud.hosts
    with CheckedReader(hosts[0].file(image), image.content, seed=2) as reader:
        wait_for("a leader", lambda: deployment.leads("h0"))
        for lies in (
            {"extra_out": -1.0},
            {"extra_out": float("nan")},
            {"extra_out": 1e15},
            {"extra_out": 1.25e8, "link_bytes_per_s": 1.25e6},
            {"link_bytes_per_s": 1.25e8},  # 100 times its link, just this once
            {"sequence": (int(time.time()) - 3600) * 1000, "extra_out": 1.25e6},  # an hour late
        ):
            lie(deployment, "h1", **lies)
        reader.wait_reads(20)
        decision = deployment.in_force()
        assert decision is not None
        assert decision.weights == {}, "nothing was decided on lies"
        broker.stop()
        deployment.links[1].share = BUSY
        reader.wait_reads(50)
        log = hosts[0].log_path
        wait_for("the hosts are silent", lambda: "blind" in log.read_text(), 30)
        assert deployment.in_force() == decision
        broker.start()
        deployment.wait_shares(1, 0.0, 0.17, timeout=90)
        reader.wait_reads(20)
    assert reader.errors == []


def test_half_of_the_hosts_leave_at_once(deployment: PolicyDeployment) -> None:
    image = deployment.start(4, member_timeout=3)
    hosts = deployment.cloud.hosts
    with CheckedReader(hosts[0].file(image), image.content, seed=3) as reader:
        deployment.links[1].share = BUSY
        deployment.wait_shares(1, 0.0, 0.12)
        gone = hosts[2:]
        try:
            for host in gone:
                host.vanish()
            reader.wait_reads(20)
        finally:
            for host in gone:
                host.stop()  # what a dead host does not have any more: its mount
        del hosts[2:]

        def are_two() -> bool:
            return all(len(deployment.shares(host)) == 2 for host in hosts)

        wait_for(f"a ring of two\n{hosts[0].log()}", are_two)
        deployment.wait_shares(1, 0.0, 0.3)  # and it still is relieved
        reader.wait_reads(50)
    assert reader.errors == []
