"""Ceilometer's samples from its notification bus: the alternative to its ``http`` publisher.

Polling agents notify ``telemetry.polling`` with priority *sample*; Ceilometer's own notification
agent hears them, and this service hears copies, in a pool of its own. Each sample is signed with
Ceilometer's ``[publisher] telemetry_secret``; those with another signature are dropped.
"""

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from acstor import exception
from acstor.policy.feeds.ceilometer import samples as ceilometer_feed_samples
from acstor.policy.feeds.ceilometer.feed import CeilometerSamples
from acstor.rpc import background_server
from acstor.rpc.background_server import BackgroundServer

LOG = logging.getLogger(__name__)

EVENT_TYPE = "telemetry.polling"
SIGNATURE = "message_signature"
SAMPLES_MAX = 20_000
"""Samples of one notification."""
_DEPTH_MAX = 32


class SampleListener(BackgroundServer):
    """Hears the samples that Ceilometer's agents poll; a feed of the policy service.

    :param open_transport: returns an oslo.messaging notification transport; called on the thread.
    :param exchange: Ceilometer's ``control_exchange``.
    :param topic: where its polling agents notify.
    :param pool: name of the queue that gets copies; each policy service has its own.
    """

    def __init__(
        self,
        samples: CeilometerSamples,
        open_transport: Callable[[], Any],
        *,
        exchange: str,
        topic: str,
        pool: str,
        secret: str,
    ) -> None:
        self._open_transport = open_transport
        self._exchange = exchange
        self._topic = topic
        self._pool = pool
        self._samples = samples
        self._secret = secret
        self.problem: str | None = None
        super().__init__(
            "policy-ceilometer-bus",
            self._listening,
            on_listening=self._note_listening,
            on_failure=self._note_failure,
        )

    def _listening(self) -> Any:
        import oslo_messaging

        endpoint = SampleEndpoint(self._samples, self._secret)
        endpoint.filter_rule = oslo_messaging.NotificationFilter(event_type=f"^{EVENT_TYPE}$")
        return background_server.started(
            self._open_transport(),
            lambda opened: oslo_messaging.get_notification_listener(
                opened,
                [oslo_messaging.Target(exchange=self._exchange, topic=self._topic)],
                [endpoint],
                executor="threading",
                pool=self._pool,
            ),
        )

    def _note_listening(self) -> None:
        self.problem = None
        LOG.info("listening to Ceilometer's samples on the notification bus")

    def _note_failure(self, error: Exception, failures: int) -> None:
        self.problem = exception.one_line(error)
        if failures == 1:
            LOG.warning("no samples of Ceilometer can be heard: %s", self.problem)


class SampleEndpoint:
    """Endpoint that oslo.messaging may call: a method of the priority's name."""

    filter_rule: Any = None

    def __init__(self, samples: CeilometerSamples, secret: str) -> None:
        self._samples = samples
        self._secret = secret

    def sample(
        self, context: object, publisher: object, event_type: str, payload: object, metadata: object
    ) -> None:
        """Take the samples of a notification."""
        del context, publisher, event_type, metadata
        found = payload.get("samples") if isinstance(payload, Mapping) else None
        if not isinstance(found, list) or len(found) > SAMPLES_MAX:
            self._samples.refuse("malformed")
            return
        signed = [each for each in found if is_signed(each, self._secret)]
        for _ in range(len(found) - len(signed)):
            self._samples.refuse("unsigned")
        self._samples.take(signed, ceilometer_feed_samples.from_bus)


def is_signed(message: object, secret: str) -> bool:
    """Return whether a sample has the signature that Ceilometer computes with a secret."""
    given = message.get(SIGNATURE) if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(given, str) or not given.isascii():
        return False
    try:
        expected = signature(message, secret)
    except (AttributeError, RecursionError, TypeError, UnicodeError):
        return False
    return hmac.compare_digest(given, expected)


def signature(message: Mapping[str, Any], secret: str) -> str:
    """Return Ceilometer's signature of a message.

    As ``ceilometer.publisher.utils``, which would bring all of Ceilometer (RFD 0017).

    HMAC-SHA256 over name and value of every field in the order of the names, as their texts; fields
    of inner objects count by paths, ``outer:inner``; lists as Python prints them with their texts
    in UTF-8.

    :raises TypeError: for names that are no texts.
    :raises RecursionError: for objects in objects without end.
    """
    digest = hmac.new(secret.encode(), digestmod=hashlib.sha256)
    for name, value in _fields(message, 0):
        if name != SIGNATURE:
            digest.update(name.encode())
            digest.update(str(value).encode())
    return digest.hexdigest()


def _fields(message: Mapping[str, Any], depth: int) -> Iterator[tuple[str, object]]:
    if depth > _DEPTH_MAX:
        raise RecursionError("objects in objects")
    for name, value in sorted(message.items()):
        if isinstance(value, Mapping):
            for inner, inner_value in _fields(value, depth + 1):
                yield f"{name}:{inner}", inner_value
        elif isinstance(value, list | tuple):
            yield name, _encoded(value, depth)
        else:
            yield name, value


def _encoded(value: object, depth: int) -> object:
    """Return a value of a list with its texts as bytes."""
    if depth > _DEPTH_MAX:
        raise RecursionError("lists in lists")
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return [_encoded(each, depth + 1) for each in value]
    if isinstance(value, Mapping):
        return {
            _encoded(name, depth + 1): _encoded(each, depth + 1)
            for name, each in sorted(value.items())
        }
    return value
