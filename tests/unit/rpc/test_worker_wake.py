"""Workers are told of tasks, over oslo.messaging's in-process transport."""

import os
import threading
from typing import Any

import pytest
from oslo_config import cfg

from acstor.backoff import BackOff
from acstor.rpc import announcements, transport
from acstor.rpc.announcements import Announcement, Announcements
from acstor.rpc.worker_wake import TaskAnnouncements, WakeEndpoint, WakeServer
from testbed.fixtures.conditions import wait_for
from tests.unit.rpc.conftest import Listen

WAIT = 20.0
QUICK = BackOff(first=0.01, longest=0.01, shortest=0.01, spread=1.0)


def test_every_worker_hears_of_a_task(conf: cfg.ConfigOpts, listen: Listen) -> None:
    heard = [threading.Event(), threading.Event()]
    listen("h1")  # an agent is told nothing
    servers = [WakeServer(conf, "c1", one.set) for one in heard]
    tasks = TaskAnnouncements(conf)
    try:
        for server in servers:
            server.start()
            assert server.is_listening.wait(WAIT)
        tasks.announce()
        wait_for("both heard it", lambda: all(one.is_set() for one in heard))
    finally:
        tasks.stop(10)
        for server in servers:
            server.stop(10)


def test_what_a_later_release_adds_is_passed_over() -> None:
    heard: list[bool] = []
    WakeEndpoint(lambda: heard.append(True)).tasks_queued({}, kind="create")
    assert heard == [True]


def test_broker_that_is_away_holds_nobody_up(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_called, is_over = threading.Event(), threading.Event()

    def connect(conf: cfg.ConfigOpts) -> Any:
        is_called.set()
        is_over.wait(WAIT)
        raise OSError("no broker")

    monkeypatch.setattr(transport, "open_transport", connect)
    opened: list[Announcements] = []

    def open_announcements(conf: cfg.ConfigOpts) -> Announcements:
        opened.append(Announcements(conf))
        return opened[0]

    tasks = TaskAnnouncements(conf, open_announcements)
    for _ in range(1000):
        tasks.announce()
    assert is_called.wait(WAIT)
    (one,) = opened
    assert one._waiting.qsize() == 1
    is_over.set()
    tasks.stop(10)


def test_absence_of_the_broker_is_told_once(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    def connect(conf: cfg.ConfigOpts) -> Any:
        attempts.append(1)
        raise OSError("no broker")

    monkeypatch.setattr(transport, "open_transport", connect)
    monkeypatch.setattr(announcements, "RECONNECT", QUICK)
    tasks = TaskAnnouncements(conf)
    tasks.announce()
    wait_for("several attempts", lambda: len(attempts) > 3)
    tasks.stop(10)
    assert caplog.text.count("message transport is away") == 1


def test_process_that_was_forked_tells_by_itself(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Announcements] = []

    class Silent(Announcements):
        def start(self) -> None:
            opened.append(self)

    tasks = TaskAnnouncements(conf, Silent)
    tasks.announce()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    tasks.announce()
    tasks.announce()
    assert [one._waiting.qsize() for one in opened] == [1, 1]


def test_thread_that_cannot_be_had_costs_no_task(conf: cfg.ConfigOpts) -> None:
    class Full(Announcements):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    TaskAnnouncements(conf, Full).announce()


def test_announcement_that_waits_stands_for_those_after_it(conf: cfg.ConfigOpts) -> None:
    lonely = Announcements(conf)
    for _ in range(3):
        lonely.announce_once(Announcement("tasks_queued", "1.0", {}))
        lonely.announce_ring(7)
    assert lonely._waiting.qsize() == 4
