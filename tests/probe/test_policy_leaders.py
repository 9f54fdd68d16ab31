"""A leader that sleeps at its write, two that lead at once: terms fence, and reads go on."""

import os
import pathlib
import signal
import sys
from collections.abc import Iterator

import pytest

from acstor.cluster.decision_journal import read_records
from testbed.fixtures import broker as brokers
from testbed.fixtures import memcached as memcacheds
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.decision_watch import DecisionWatch
from testbed.fixtures.hosts import Host
from testbed.fixtures.policy_deployment import PolicyDeployment, policy_deployment

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

INTERVAL = 0.5
BUSY = 0.95
QUIET = 30
"""Collections without a busy host after which weights go back: more than a machine stands still."""
LOCK = 15
"""Seconds that the lock lasts when nobody renews it: who lives renews it on a busy machine too."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("leaders") / "broker") as running:
        yield running


@pytest.fixture
def deployment(tmp_path: pathlib.Path, broker: Broker) -> Iterator[PolicyDeployment]:
    with policy_deployment(tmp_path, broker, INTERVAL, quiet_period=QUIET) as found:
        yield found


def watched(deployment: PolicyDeployment) -> DecisionWatch:
    return DecisionWatch(deployment.origin, f"file://{deployment.cloud.path}/coordination")


def journal(host: Host) -> list[str]:
    """Return the kinds of what a host's service wrote down."""
    path = host.path / "policy" / "journal.jsonl"
    if not path.exists():
        return []
    return [str(record["kind"]) for record in read_records(str(path))]


def reasons(watch: DecisionWatch) -> str:
    """Return the weights and the reason of each decision, for who has to explain them."""
    return "\n".join(f"{each.weights}: {each.reason}" for each in watch.decisions)


def terms_of(watch: DecisionWatch) -> list[list[int]]:
    """Return the terms by which each agent went; no agent, no answer."""
    return list(watch.agents.values()) or [[]]


def is_stopped(pid: int) -> bool:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


@pytest.mark.skipif(not memcacheds.is_installed(), reason="needs memcached and pymemcache")
def test_leader_stopped_at_its_write_is_refused_when_it_goes_on(
    deployment: PolicyDeployment,
) -> None:
    image = deployment.start(2, policies=0)
    first, second = deployment.cloud.hosts
    with memcacheds.memcached() as backend:
        options = {
            "coordination": {
                "backend_url": backend, "member_timeout": LOCK, "heartbeat_interval": 0.5,
            }
        }  # fmt: skip
        sleepy = [sys.executable, "-m", "tests.probe.policy_worker", "2", "stopped-before"]
        sleeper = deployment.start_policy(first, options, sleepy)
        wait_for(f"it leads\n{first.log()}", lambda: deployment.leads("h0"))
        deployment.start_policy(second, options)
        with (
            watched(deployment) as watch,
            CheckedReader(first.file(image), image.content, seed=1) as reader,
        ):
            deployment.links[1].share = BUSY
            wait_for("the leader stops at its write", lambda: is_stopped(sleeper.pid))
            assert "published" not in journal(first)
            wait_for(f"another leads\n{second.log()}", lambda: deployment.leads("h1"))
            deployment.wait_shares(1, 0.0, 0.25)  # what the first one was about to do
            reader.wait_reads(20)
            os.kill(sleeper.pid, signal.SIGCONT)
            wait_for(f"it is refused\n{first.log()}", lambda: "refused" in journal(first))
            deployment.links[1].share = 0.0
            deployment.wait_shares(1, 0.4, 0.6)  # longer than a deposed one waits to claim again
            assert "deposed: the decision in force is that of h1/" in first.log_path.read_text()
            reader.wait_reads(20)
        assert sleeper.poll() is None
    assert reader.errors == []
    watch.check()
    assert watch.leaders == ["h0", "h1"], f"{first.log()}\n{second.log()}"
    assert "published" not in journal(first)


def test_two_live_leaders_alternate_and_the_ring_stays(deployment: PolicyDeployment) -> None:
    """Each has a lock of its own: what a split backend gives them."""
    image = deployment.start(2, policies=0)
    hosts = deployment.cloud.hosts
    for host in hosts:
        own = {"coordination": {"backend_url": f"file://{host.path}/coordination"}}
        deployment.start_policy(host, own)
    with (
        watched(deployment) as watch,
        CheckedReader(hosts[0].file(image), image.content, seed=2) as reader,
    ):
        wait_for("both have led", lambda: len(watch.leaders) >= 2)
        deployment.links[1].share = BUSY
        deployment.wait_shares(1, 0.0, 0.25)
        changes = len(watch.leaders)
        wait_for("more changes", lambda: len(watch.leaders) >= changes + 4)
        deployment.wait_shares(1, 0.0, 0.25)
        wait_for("agents go by them", lambda: all(len(each) >= 3 for each in terms_of(watch)))
        reader.wait_reads(20)
        print(f"{watch.leaders}: {watch.weights}; agents {watch.agents}")
    assert reader.errors == []
    watch.check()
    # None, the relief in bounded steps, and it never swings back.
    assert len(watch.weights) <= 4, reasons(watch)
    shares = [weights["h1"] for weights in watch.weights if weights]
    assert shares == sorted(shares, reverse=True), reasons(watch)
