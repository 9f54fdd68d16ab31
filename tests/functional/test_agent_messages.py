"""Messages between agents over a real broker that comes, goes and comes back."""

import pathlib
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.agent_server import (
    AgentServer,
    AnnouncementEndpoint,
)
from acstor.rpc.announcements import Announcements
from testbed.fixtures import broker as brokers
from testbed.fixtures.agent_greeter import Greeter
from testbed.fixtures.broker import Broker
from testbed.fixtures.conditions import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]


@pytest.fixture
def stopped_broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def conf(tmp_path: pathlib.Path, stopped_broker: Broker) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text(
        f"[DEFAULT]\ntransport_url = {stopped_broker.url}\n"
        "[oslo_messaging_rabbit]\nrabbit_retry_interval = 1\nrabbit_retry_backoff = 0\n"
    )
    return loading.load("test", ["--config-file", str(path)])


def test_broker_that_was_down_and_that_goes_away_is_found_again(
    stopped_broker: Broker, conf: cfg.ConfigOpts
) -> None:
    broker, rings = stopped_broker, list[int]()
    server = AgentServer(conf, "h1", [AnnouncementEndpoint(rings.append), Greeter()])
    announcements = Announcements(conf)
    server.start()
    announcements.start()
    try:
        with transport.opened(conf) as opened:
            client = AgentClient(opened, timeout=5.0)
            with pytest.raises(exception.UnavailableError):
                client.call("h1", "greet", name="you")

            def greets() -> bool:
                try:
                    return bool(client.call("h1", "greet", name="you") == "hello you")
                except exception.UnavailableError:
                    return False

            broker.start()
            wait_for("an answer", greets, 60)

            def is_announced() -> bool:
                announcements.announce_ring(1)  # a hint: nothing says that each of them comes
                return 1 in rings

            wait_for("an announcement", is_announced, 60, 0.5)
            with pytest.raises(exception.UnavailableError):
                client.call("h2", "greet", name="you")

            broker.stop()
            with pytest.raises(exception.UnavailableError):
                client.call("h1", "greet", name="you")
            broker.start()
            wait_for("an answer again", greets, 90)

            def is_heard() -> bool:
                announcements.announce_ring(2)
                return 2 in rings

            wait_for("an announcement again", is_heard, 90, 0.5)
    finally:
        server.stop(10)
        announcements.stop(10)


def test_host_without_an_agent_is_told_at_once(
    stopped_broker: Broker, conf: cfg.ConfigOpts
) -> None:
    """The broker knows of no queue: nobody waits for the whole timeout."""
    stopped_broker.start()
    with transport.opened(conf) as opened:
        client = AgentClient(opened, timeout=60.0)
        answers = client.call_all([f"h{number}" for number in range(8)], "greet", {})
    assert {type(answer.error) for answer in answers.values()} == {exception.UnavailableError}
    assert all("no agent listens" in str(answer.error) for answer in answers.values())
