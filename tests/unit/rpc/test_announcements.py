"""Announcements over oslo.messaging's in-process transport."""

from oslo_config import cfg

from acstor.rpc.agent_server import RingEndpoint
from acstor.rpc.announcements import WAITING_MAX, Announcements
from tests.fixtures.conditions import wait_for
from tests.unit.rpc.conftest import Listen


def test_every_agent_hears_a_ring(conf: cfg.ConfigOpts, listen: Listen) -> None:
    first: list[int] = []
    second: list[int] = []
    listen("h1", RingEndpoint(first.append))
    listen("h2", RingEndpoint(second.append))
    announcements = Announcements(conf)
    announcements.start()
    try:
        announcements.announce_ring(7)
        wait_for("both heard it", lambda: first == second == [7])
    finally:
        announcements.stop(10)


def test_malformed_announcement_is_ignored() -> None:
    heard: list[int] = []
    endpoint = RingEndpoint(heard.append)
    for generation in ("7", None, True, [1]):
        endpoint.ring_published({}, generation)
    endpoint.ring_published({})
    assert heard == []


def test_announcing_without_a_broker_neither_waits_nor_piles_up(conf: cfg.ConfigOpts) -> None:
    lonely = Announcements(conf)
    for generation in range(10 * WAITING_MAX):
        lonely.announce_ring(generation)
    assert lonely._waiting.qsize() == WAITING_MAX
    assert lonely._waiting.get() == 9 * WAITING_MAX
