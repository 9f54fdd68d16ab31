"""Notification to preload over oslo.messaging's in-process transport, sent as Nova sends it."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.preload_endpoint import PreloadEndpoint
from acstor.conf import loading
from acstor.control.protocol import PreloadWhat
from acstor.preload.admission import Estimate
from acstor.preload.image_caching import assembly
from acstor.preload.image_caching.notification import PROGRESS
from acstor.preload.image_caching.starting import Outcome
from acstor.preload.request import PreloadRequest
from acstor.rpc import transport
from acstor.rpc.agent_server import AgentServer
from testbed.fixtures.conditions import wait_for
from tests.unit.preload.image_caching.conftest import HOST, IMAGE, OTHER, progress, status


class Preloads:
    """Preloads of a host that serves one image."""

    def __init__(self) -> None:
        self.admitted: list[PreloadRequest] = []

    def estimate(self, image: str, what: PreloadWhat) -> Estimate:
        raise exception.NotFoundError(image)

    def admit(self, admission_id: str, request: PreloadRequest) -> dict[str, object]:
        if request.image != IMAGE:
            raise exception.NotFoundError(f"image {request.image} is not attached")
        self.admitted.append(request)
        return status(id=admission_id)

    def status(self, image: str | None = None) -> list[dict[str, object]]:
        return [status() for each in self.admitted if image in {None, each.image}]

    def give_up(self, image: str, admission_id: str | None = None) -> dict[str, object]:
        raise exception.NotFoundError(image)


WANTED = (
    "[registrar]\nnova_notification_topics = versioned_notifications\n"
    "[preload]\nnova_cache_images = true\n"
)


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[DEFAULT]\ntransport_url = fake://\n{WANTED}")
    return loading.load("test", ["--config-file", str(path)])


@pytest.fixture
def nova(conf: cfg.ConfigOpts) -> Iterator[Callable[[str, Any], None]]:
    """Send a notification as nova-conductor does."""
    options = transport.open_notification_transport(conf).conf
    options.set_override("control_exchange", "nova")
    notifier = oslo_messaging.Notifier(
        transport.open_notification_transport(conf),
        driver="messagingv2",
        publisher_id="nova-conductor:fake-mini",
        topics=["versioned_notifications"],
    )
    yield lambda event, payload: notifier.info({}, event, payload)
    options.clear_override("control_exchange")


def test_image_that_nova_caches_on_a_host_is_preloaded_there(
    conf: cfg.ConfigOpts, nova: Callable[[str, Any], None]
) -> None:
    preloads, outcomes = Preloads(), list[Outcome]()
    server = AgentServer(conf, HOST, [PreloadEndpoint(HOST, preloads)])
    caching = assembly.build(conf, outcomes.append)
    assert caching is not None
    server.start()
    caching.start()
    try:
        wait_for("the agent listens", server.is_listening.is_set)
        wait_for("the listener listens", lambda: caching.listener.is_listening)
        nova("compute.instance.create.end", {})
        nova(PROGRESS, progress(host="Compute", images_cached=[IMAGE, OTHER]))
        wait_for("both have an outcome", lambda: len(outcomes) == 2)
        assert outcomes == [Outcome.STARTED, Outcome.NOT_SERVED]
        (request,) = preloads.admitted
        assert (request.image, request.what, request.pin) == (IMAGE, PreloadWhat.FULL, False)
        nova(PROGRESS, progress())
        wait_for("it is there", lambda: len(outcomes) == 3)
        assert outcomes[2] is Outcome.PRESENT
    finally:
        caching.stop()
        server.stop(10)


def test_nothing_is_followed_unless_it_is_wanted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text("[DEFAULT]\ntransport_url = fake://\n")
    assert assembly.build(loading.load("test", ["--config-file", str(path)])) is None


def test_following_needs_a_broker(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(WANTED)
    with pytest.raises(exception.ConfigurationError, match="transport"):
        assembly.build(loading.load("test", ["--config-file", str(path)]))


def test_following_needs_a_topic(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text("[DEFAULT]\ntransport_url = fake://\n[preload]\nnova_cache_images = true\n")
    with pytest.raises(exception.ConfigurationError, match="no topic") as caught:
        assembly.build(loading.load("test", ["--config-file", str(path)]))
    assert "nova_notification_topics" in caught.value.hint
