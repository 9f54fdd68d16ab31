"""Notifications over oslo.messaging's in-process transport, sent as Glance sends them."""

import contextlib
import logging
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg
from oslo_messaging._drivers import impl_rabbit

from acstor.conf import loading
from acstor.registrar import notifications
from acstor.registrar.notifications import ImageNotifications
from acstor.rpc import notification_listener, transport
from testbed.fixtures.conditions import wait_for

Listen = Callable[[], tuple[ImageNotifications, list[tuple[str, str]]]]
IMAGE_ID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text("[DEFAULT]\ntransport_url = fake://\n")
    return loading.load("test", ["--config-file", str(path)])


@pytest.fixture
def glance(conf: cfg.ConfigOpts) -> Iterator[Callable[..., None]]:
    """Send a notification."""
    options = transport.open_notification_transport(conf).conf
    # Glance makes this its transport's default exchange (glance.notifier.set_defaults).
    options.set_override("control_exchange", "glance")
    sender = transport.open_notification_transport(conf)
    notifier = oslo_messaging.Notifier(
        sender, driver="messagingv2", publisher_id="image.controller", topics=["notifications"]
    )

    def send(event: str, payload: Any, priority: str = "info") -> None:
        getattr(notifier, priority)({}, event, payload)

    yield send
    options.clear_override("control_exchange")


@pytest.fixture
def listen(conf: cfg.ConfigOpts) -> Iterator[Listen]:
    started: list[ImageNotifications] = []

    def listen() -> tuple[ImageNotifications, list[tuple[str, str]]]:
        heard: list[tuple[str, str]] = []
        connected: list[bool] = []
        each = ImageNotifications(
            conf, lambda event, image: heard.append((event, image)), lambda: connected.append(True)
        )
        each.start()
        started.append(each)
        wait_for("it listens", lambda: connected)
        assert each.problem is None
        return each, heard

    yield listen
    for each in started:
        each.stop(10)


def test_image_events_are_heard_with_their_image(
    listen: Listen, glance: Callable[..., None]
) -> None:
    _, heard = listen()
    for event in notifications.EVENTS:
        glance(event, {"id": IMAGE_ID, "status": "anything"})
    wait_for("all were heard", lambda: len(heard) == len(notifications.EVENTS))
    assert heard == [(event, IMAGE_ID) for event in notifications.EVENTS]


def test_what_says_nothing_new_is_not_heard(listen: Listen, glance: Callable[..., None]) -> None:
    _, heard = listen()
    for event in ("image.create", "image.prepare", "image.send", "image.member.update", "task.run"):
        glance(event, {"id": IMAGE_ID})
    glance("image.upload", "Image storage media is full", "error")  # Glance's failed upload
    payloads: list[Any] = ["text", None, [], {}, {"id": 7}, {"id": None}]
    for payload in payloads:
        glance("image.update", payload)
    glance("image.delete", {"id": "last"})
    wait_for("the last was heard", lambda: heard)
    assert heard == [("image.delete", "last")]


def test_nothing_is_taken_from_other_listeners(
    conf: cfg.ConfigOpts, listen: Listen, glance: Callable[..., None]
) -> None:
    class Ceilometer:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def info(
            self, context: Any, publisher: str, event: str, payload: Any, metadata: Any
        ) -> None:
            self.heard.append(payload["id"])

    ceilometer = Ceilometer()
    server = oslo_messaging.get_notification_listener(
        transport.open_notification_transport(conf),
        [oslo_messaging.Target(topic="notifications", exchange="glance")],
        [ceilometer],
        executor="threading",
    )
    server.start()
    try:
        _, heard = listen()
        images = [str(number) for number in range(20)]
        for image in images:
            glance("image.update", {"id": image})
        wait_for("both heard all", lambda: len(heard) == 20 and len(ceilometer.heard) == 20)
        assert sorted(ceilometer.heard) == sorted(images)
    finally:
        server.stop()
        server.wait()


def test_fault_of_the_registrar_ends_nothing(
    conf: cfg.ConfigOpts, glance: Callable[..., None]
) -> None:
    heard: list[str] = []
    connected: list[bool] = []

    def take(event: str, image: str) -> None:
        heard.append(image)
        if image == "first":
            raise ZeroDivisionError

    listener = ImageNotifications(conf, take, lambda: connected.append(True))
    listener.start()
    try:
        wait_for("it listens", lambda: connected)
        glance("image.update", {"id": "first"})
        glance("image.update", {"id": "second"})
        wait_for("it goes on", lambda: "second" in heard)
        assert heard == ["first", "second"], "nothing is sent again"
    finally:
        listener.stop(10)


def test_broker_that_goes_is_told_once_and_its_return_is_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    returned: list[bool] = []
    driver = impl_rabbit.LOG
    watch = notification_listener.BrokerWatch(lambda: returned.append(True))
    with caplog.at_level(logging.INFO), contextlib.ExitStack() as watching:
        watch.watch()
        watching.callback(watch.leave)
        for second in range(5):
            driver.error(
                "[%(id)s] AMQP server on b:5672 is unreachable: <refused>. "
                "Trying again in %(seconds)d seconds.", {"id": "x", "seconds": second},
            )  # fmt: skip
        problems = [watch.problem]
        assert caplog.records == []
        assert returned == []
        driver.info("[x] Reconnected to AMQP server on b:5672 via [amqp] client")
        problems.append(watch.problem)
        driver.info("[y] Reconnected to AMQP server on b:5672 via [amqp] client")
    assert problems == ["[x] AMQP server on b:5672 is unreachable: <refused>.", None]
    assert returned == [True]
    driver.error("not ours")
    assert "not ours" in caplog.text
