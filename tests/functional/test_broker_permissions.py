"""The users that the installation guide makes in RabbitMQ: what they may do, and what not."""

import pathlib

import amqp
import pytest
from oslo_config import cfg

from acstor.conf import loading
from acstor.registrar.notifications import ImageNotifications
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.agent_server import (
    AgentServer,
    AnnouncementEndpoint,
)
from acstor.rpc.announcements import Announcements
from testbed.fixtures import broker as brokers
from testbed.fixtures.agent_greeter import Greeter
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.documents import SOURCE, block

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

PAGE = SOURCE / "install" / "controller.rst"
IMAGE = "00000000-0000-4000-8000-000000000001"
CALL_TIMEOUT = 30.0


def configuration(path: pathlib.Path, broker: Broker) -> cfg.ConfigOpts:
    """Return what acstor.conf of a controller says of the broker."""
    events = broker.url_of("acstor-events", "GLANCE_EVENTS_PASS")
    path.write_text(
        f"[DEFAULT]\ntransport_url = {broker.url_of('acstor', 'RABBIT_PASS', 'acstor')}\n"
        f"[oslo_messaging_notifications]\ntransport_url = {events}\n"
    )
    return loading.load("test", ["--config-file", str(path)])


def check_calls(conf: cfg.ConfigOpts) -> None:
    """Have agents called, and told something."""
    rings: list[int] = []
    server = AgentServer(conf, "h1", [AnnouncementEndpoint(rings.append), Greeter()])
    announcements = Announcements(conf)
    server.start()
    announcements.start()
    try:
        wait_for("the agent listens", server.is_listening.is_set, 120)
        with transport.opened(conf) as opened:
            client = AgentClient(opened, timeout=CALL_TIMEOUT)
            assert client.call("h1", "greet", name="you") == "hello you"

        def is_announced() -> bool:
            announcements.announce_ring(1)  # a hint: nothing says that each of them comes
            return 1 in rings

        wait_for("an announcement", is_announced, 120, 0.5)
    finally:
        server.stop(10)
        announcements.stop(10)


def check_notifications(conf: cfg.ConfigOpts, broker: Broker) -> None:
    """Have an image of Glance noticed."""
    import oslo_messaging

    heard: list[tuple[str, str]] = []
    connected: list[bool] = []
    notifications = ImageNotifications(
        conf, lambda event, image: heard.append((event, image)), lambda: connected.append(True)
    )
    theirs = cfg.ConfigOpts()
    theirs([])
    oslo_messaging.set_transport_defaults("glance")  # as Glance does, before its transport
    try:
        glance = oslo_messaging.get_notification_transport(theirs, url=broker.url)
    finally:
        oslo_messaging.set_transport_defaults("openstack")
    notifier = oslo_messaging.Notifier(
        glance, driver="messagingv2", publisher_id="image.localhost", topics=["notifications"]
    )
    notifications.start()
    try:
        wait_for("the registrar listens", lambda: connected or notifications.problem, 120)
        assert notifications.problem is None

        def is_heard() -> bool:
            notifier.info({}, "image.update", {"id": IMAGE})
            return ("image.update", IMAGE) in heard

        wait_for("a notification", is_heard, 120)
    finally:
        notifications.stop(10)
        glance.cleanup()


def connection(broker: Broker, user: str, password: str, virtual_host: str) -> amqp.Connection:
    return amqp.Connection(
        f"127.0.0.1:{broker.port}",
        userid=user,
        password=password,
        virtual_host=virtual_host,
        confirm_publish=True,
        connect_timeout=CALL_TIMEOUT,
        read_timeout=CALL_TIMEOUT,
    )


def check_refusal(broker: Broker, exchange: str) -> None:
    """Have a message of the user who hears Glance refused."""
    with connection(broker, "acstor-events", "GLANCE_EVENTS_PASS", "/") as opened:
        channel = opened.channel()
        with pytest.raises((amqp.AccessRefused, amqp.NotFound)):
            channel.basic_publish(amqp.Message("x"), exchange=exchange, routing_key="conductor")


def test_users_of_the_guide_may_do_what_acstor_needs_and_no_more(tmp_path: pathlib.Path) -> None:
    with broker_in(tmp_path / "broker") as broker:
        broker.control(block(PAGE, "users of the broker").text)
        conf = configuration(tmp_path / "acstor.conf", broker)
        check_calls(conf)
        check_notifications(conf, broker)

        with pytest.raises((amqp.NotAllowed, amqp.AccessRefused)):
            connection(broker, "acstor", "RABBIT_PASS", "/").connect()
        with pytest.raises((amqp.NotAllowed, amqp.AccessRefused)):
            connection(broker, "acstor-events", "GLANCE_EVENTS_PASS", "acstor").connect()
        with connection(broker, "guest", "guest", "/") as services:
            services.channel().exchange_declare("openstack", "topic", auto_delete=False)
        for exchange in ("", "glance", "openstack"):
            check_refusal(broker, exchange)
        with (
            connection(broker, "acstor-events", "GLANCE_EVENTS_PASS", "/") as opened,
            pytest.raises(amqp.AccessRefused),
        ):
            opened.channel().queue_declare("conductor")
