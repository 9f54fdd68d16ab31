"""Announcements over oslo.messaging's in-process transport."""

from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from acstor.backoff import BackOff
from acstor.rpc import announcements as module
from acstor.rpc import transport
from acstor.rpc.agent_server import AnnouncementEndpoint
from acstor.rpc.announcements import WAITING_MAX, Announcements
from testbed.fixtures.conditions import wait_for
from tests.unit.rpc.conftest import Listen


def test_every_agent_hears_a_ring(conf: cfg.ConfigOpts, listen: Listen) -> None:
    first: list[int] = []
    second: list[int] = []
    listen("h1", AnnouncementEndpoint(first.append))
    listen("h2", AnnouncementEndpoint(second.append))
    announcements = Announcements(conf)
    announcements.start()
    try:
        announcements.announce_ring(7)
        wait_for("both heard it", lambda: first == second == [7])
    finally:
        announcements.stop(10)


def test_decisions_are_heard_in_their_turn(conf: cfg.ConfigOpts, listen: Listen) -> None:
    rings: list[int] = []
    decisions: list[bool] = []
    listen("h1", AnnouncementEndpoint(rings.append, decisions.append))
    announcements = Announcements(conf)
    announcements.start()
    try:
        announcements.announce_decision(concerns_all=False)
        announcements.announce_decision(concerns_all=True)
        announcements.announce_ring(8)
        wait_for("all were heard", lambda: rings == [8] and decisions == [False, True])
    finally:
        announcements.stop(10)


def test_malformed_announcement_is_ignored() -> None:
    heard: list[int] = []
    endpoint = AnnouncementEndpoint(heard.append)
    for generation in ("7", None, True, [1]):
        endpoint.ring_published({}, generation)
    endpoint.ring_published({})
    decided: list[bool] = []
    endpoint = AnnouncementEndpoint(heard.append, decided.append)
    for concerns_all in (1, "true", None):
        endpoint.decision_published({}, concerns_all)
    assert heard == decided == []


def test_announcing_without_a_broker_neither_waits_nor_piles_up(conf: cfg.ConfigOpts) -> None:
    lonely = Announcements(conf)
    for generation in range(10 * WAITING_MAX):
        lonely.announce_ring(generation)
    assert lonely._waiting.qsize() == WAITING_MAX
    oldest = lonely._waiting.get()
    assert oldest is not None
    assert oldest.arguments == {"generation": 9 * WAITING_MAX}


class Broker:
    """Client of oslo.messaging whose casts fail while the broker is away."""

    def __init__(self) -> None:
        self.is_away = True
        self.sent: list[str] = []

    def prepare(self, **target: object) -> "Broker":
        return self

    def cast(self, context: dict[str, Any], method: str, **arguments: object) -> None:
        if self.is_away:
            raise OSError("no broker")
        self.sent.append(method)

    def cleanup(self) -> None:
        pass


def test_each_absence_of_the_broker_is_told_once(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    monkeypatch.setattr(transport, "open_transport", lambda conf: broker)
    monkeypatch.setattr(oslo_messaging, "get_rpc_client", lambda *args, **options: broker)
    monkeypatch.setattr(module, "RECONNECT", BackOff(0.01, 0.01, 0.01, 1.0))
    announcements = Announcements(conf)
    announcements.start()

    def told() -> int:
        announcements.announce_ring(1)
        return caplog.text.count("message transport is away")

    try:
        for count in (1, 2):
            broker.is_away = True
            wait_for("it is told", lambda count=count: told() >= count)  # type: ignore[misc]
            assert told() == count
            broker.is_away = False
            broker.sent.clear()
            wait_for("the broker is back", lambda: told() and broker.sent)
    finally:
        announcements.stop(10)
    assert caplog.text.count("message transport is away") == 2
