"""Announcements over oslo.messaging's in-process transport."""

import pathlib
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg

from acstor.conf import loading
from acstor.rpc import announcements
from acstor.rpc.announcements import WAITING_MAX, Announcements
from tests.fixtures.conditions import wait_for


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text("[DEFAULT]\ntransport_url = fake://\n")
    return loading.load("test", ["--config-file", str(path)])


@pytest.fixture
def listen(conf: cfg.ConfigOpts) -> Iterator[Callable[[str], tuple[Announcements, list[int]]]]:
    started: list[Announcements] = []

    def listen(host: str) -> tuple[Announcements, list[int]]:
        heard: list[int] = []
        each = Announcements(conf, host, heard.append)
        each.start()
        started.append(each)
        assert each.is_connected.wait(20)
        return each, heard

    yield listen
    for each in started:
        each.stop(10)


def test_every_agent_hears_a_ring(
    listen: Callable[[str], tuple[Announcements, list[int]]],
) -> None:
    (first, heard_first), (_, heard_second) = listen("h1"), listen("h2")
    first.announce_ring(7)
    wait_for("both heard it", lambda: heard_first == heard_second == [7])


def test_malformed_announcement_is_ignored(
    listen: Callable[[str], tuple[Announcements, list[int]]],
) -> None:
    each, heard = listen("h1")
    for generation in ("7", None, True, [1]):
        each.ring_published({}, generation)
    assert heard == []


def test_announcing_without_a_broker_neither_waits_nor_piles_up(conf: cfg.ConfigOpts) -> None:
    lonely = Announcements(conf, "h1", lambda _: None)
    for generation in range(10 * WAITING_MAX):
        lonely.announce_ring(generation)
    assert lonely._waiting.qsize() == WAITING_MAX
    assert lonely._waiting.get() == 9 * WAITING_MAX


def test_transport_counts_only_where_the_operator_names_one(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert announcements.is_configured(conf)
    bare = loading.load("test", [])
    assert not announcements.is_configured(bare)
    monkeypatch.setenv("OS_DEFAULT__TRANSPORT_URL", "fake://")
    assert announcements.is_configured(bare)
