"""Ceilometer that falls silent, clocks that are off by an hour: weights stay, reads go on."""

import pathlib
from collections.abc import Iterator

import pytest

from acstor.cli import samples
from acstor.policy.metrics import COLLECTIONS
from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import Options
from testbed.fixtures.policy_deployment import SPEED, PolicyDeployment, policy_deployment, skewed
from testbed.fixtures.ports import free_port
from testbed.fixtures.posted_samples import PostedSamples
from testbed.fixtures.tcp_relay import TcpRelay

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

INTERVAL = 0.5
BUSY = 0.95
HOUR = 3600.0
PASSWORD = "word"
NOBODY = "rabbit://guest:guest@127.0.0.1:1/"
SKEWS = {"h0": HOUR, "h1": -HOUR}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("feeds") / "broker") as running:
        yield running


@pytest.fixture
def deployment(tmp_path: pathlib.Path, broker: Broker) -> Iterator[PolicyDeployment]:
    # Weights are not to go back by themselves while a test looks at something else.
    with policy_deployment(tmp_path, broker, INTERVAL, quiet_period=1000) as found:
        yield found


@pytest.fixture
def ports() -> dict[str, int]:
    return {"ceilometer": free_port(), "metrics": free_port()}


def heard(ports: dict[str, int]) -> dict[str, dict[str, object]]:
    """Return the options of a policy service that takes Ceilometer's samples."""
    return {
        "policy": {"metrics_port": ports["metrics"]},
        "ceilometer": {
            "listen_address": "127.0.0.1", "listen_port": ports["ceilometer"],
            "password": PASSWORD,
        },
    }  # fmt: skip


def posted(
    deployment: PolicyDeployment, ports: dict[str, int], skews: dict[str, float] | None = None
) -> PostedSamples:
    interfaces = {f"h{number}": link.name for number, link in enumerate(deployment.links)}
    return PostedSamples(ports["ceilometer"], PASSWORD, INTERVAL, interfaces, SPEED, skews)


def collections(ports: dict[str, int], **labels: str) -> float:
    sample = samples.fetch(f"127.0.0.1:{ports['metrics']}")
    return sample.total(f"{COLLECTIONS}_total", **labels)


def wait_collections(ports: dict[str, int], count: int, **labels: str) -> None:
    least = collections(ports, **labels) + count
    wait_for(f"{count} collections {labels}", lambda: collections(ports, **labels) >= least, 30)


def test_ceilometer_falls_silent_then_the_agents_too(
    deployment: PolicyDeployment, ports: dict[str, int], broker: Broker
) -> None:
    image = deployment.start(3, policies=0)
    hosts = deployment.cloud.hosts
    with (
        TcpRelay(broker.port) as bus,
        CheckedReader(hosts[0].file(image), image.content, seed=1) as reader,
    ):
        transport = {"transport_url": f"rabbit://guest:guest@127.0.0.1:{bus.port}/"}
        deployment.start_policy(hosts[0], {"DEFAULT": transport, **heard(ports)})
        with posted(deployment, ports) as ceilometer:
            wait_for("both feeds", lambda: ceilometer.outcomes["taken"] >= 3, 30)
            deployment.links[1].share = BUSY
            deployment.wait_shares(1, 0.0, 0.17)
            wait_collections(ports, 3)  # whatever was to follow has followed
            decided = deployment.in_force()
        wait_collections(ports, 5)
        assert deployment.in_force() == decided, "the agents say what Ceilometer said"
        bus.cut()
        wait_collections(ports, 1, reason="blind")
        deployment.links[2].share = BUSY  # and nobody tells
        wait_collections(ports, 4, reason="blind")
        reader.wait_reads(20)
        assert deployment.in_force() == decided, "nothing moves"
        with posted(deployment, ports):  # Ceilometer alone is enough again
            deployment.wait_shares(2, 0.0, 0.25)
        reader.wait_reads(20)
    assert reader.errors == []


@pytest.mark.parametrize(("feed", "own_skew"), [("direct", HOUR), ("ceilometer", -HOUR)])
def test_clocks_that_are_an_hour_off(
    deployment: PolicyDeployment, ports: dict[str, int], feed: str, own_skew: float
) -> None:
    image = deployment.start(3, policies=0, skews=tuple(SKEWS.values()))
    hosts = deployment.cloud.hosts
    options: Options = (
        {} if feed == "direct" else {"DEFAULT": {"transport_url": NOBODY}, **heard(ports)}
    )
    deployment.start_policy(hosts[2], options, skewed("policy", own_skew))
    with (
        posted(deployment, ports, SKEWS) as ceilometer,
        CheckedReader(hosts[0].file(image), image.content, seed=2) as reader,
    ):
        deployment.links[0].share = deployment.links[1].share = BUSY
        for number in (0, 1):  # whose clocks are ahead and behind
            deployment.wait_shares(number, 0.0, 0.25)
        reader.wait_reads(20)
    assert reader.errors == []
    assert (ceilometer.outcomes["taken"] > 0) == (feed == "ceilometer")
    assert ceilometer.outcomes["malformed"] == 0
