"""The doorbell in RADOS: who may not watch, watches that break, and listeners that have died."""

import errno
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from acstor.origin.rados import doorbell as rados_doorbell
from acstor.origin.rados.doorbell import RadosDoorbell
from acstor.origin.rados.origin import RadosOrigin
from testbed.doubles import memory_rados
from testbed.doubles.faulty_rados import FaultyRados
from testbed.doubles.memory_rados import MemoryRados
from testbed.fixtures.conditions import wait_for

PLACE = ("refs", "acstor.bell", "changes")


class Rig:
    """Doorbell over memory."""

    def __init__(self) -> None:
        self.memory = MemoryRados()
        self.faulty = FaultyRados(self.memory)
        self.origin = RadosOrigin("data", ref_pool="refs", binding=self.faulty.binding)
        self.heard = threading.Semaphore(0)

    @property
    def doorbell(self) -> RadosDoorbell:
        return self.origin.doorbell()

    def listen(self) -> None:
        """Listen, and wait until that has begun."""
        self.doorbell.listen(self.heard.release)
        self.wait_heard()

    def wait_notifications(self, count: int) -> None:
        """Wait until so many notifications were sent."""
        wait_for("the ring", lambda: self.faulty.notifications >= count)

    def wait_heard(self) -> None:
        assert self.heard.acquire(timeout=60.0)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    for name in ("RING_INTERVAL", "HEARD_INTERVAL", "CLOSE_SECONDS"):
        monkeypatch.setattr(rados_doorbell, name, 0.01)
    made = Rig()
    yield made
    made.origin.close()


def test_object_is_made_by_who_listens_and_stays_empty(rig: Rig) -> None:
    rig.doorbell.ring()
    rig.wait_notifications(1)
    assert rig.memory.stored == {}
    rig.listen()
    assert rig.memory.stored == {PLACE: b""}
    rig.listen()
    rig.doorbell.ring()
    rig.wait_heard()
    rig.wait_heard()
    assert rig.memory.stored == {PLACE: b""}


def test_watch_that_breaks_is_begun_again_and_is_a_reason_to_look(rig: Rig) -> None:
    rig.listen()
    for _ in range(3):
        rig.memory.break_watches()
        rig.wait_heard()
        rig.doorbell.ring()
        rig.wait_heard()
    assert len(rig.memory.watches) == 1


def test_listener_that_is_refused_is_told_of_once_and_may_be_allowed_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rados_doorbell, "REFUSED_SECONDS", 0.01)
    attempts = threading.Semaphore(0)
    real = RadosOrigin("data", ref_pool="refs", binding=rig.memory.binding)

    class Refusing(memory_rados.PermissionError):
        def __str__(self) -> str:
            attempts.release()
            return "not permitted"

    rig.memory.watch_error = Refusing("not permitted", errno.EPERM)
    with caplog.at_level(logging.INFO, logger=rados_doorbell.LOG.name):
        real.doorbell().listen(rig.heard.release)
        for _ in range(3):
            assert attempts.acquire(timeout=60.0)
        assert not rig.heard.acquire(blocking=False)
        rig.memory.watch_error = None
        rig.wait_heard()
    assert len(caplog.records) == 1
    assert "usual looks" in caplog.records[0].getMessage()
    real.close()


def test_ring_never_waits_for_listeners_that_have_died(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rados_doorbell, "UNDER_WAY_MAX", 2)
    rig.faulty.is_notifying_silent = True
    for count in (1, 2):
        rig.doorbell.ring()
        rig.wait_notifications(count)
    for _ in range(50):
        rig.doorbell.ring()
    assert rig.faulty.notifications == 2


def test_rings_that_come_together_are_few_notifications(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rados_doorbell, "RING_INTERVAL", 3600.0)
    for _ in range(1000):
        rig.doorbell.ring()
    rig.wait_notifications(1)
    assert rig.faulty.notifications == 1


def test_ring_before_the_end_still_goes_out(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rados_doorbell, "CLOSE_SECONDS", 60.0)
    rig.doorbell.ring()
    rig.origin.close()
    assert rig.faulty.notifications == 1


def test_watch_that_cannot_be_ended_is_kept_for_ever(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The binding ends it again when it is freed, by what librados has freed before."""

    def close(watch: memory_rados.Watch) -> None:
        raise memory_rados.TimedOut("no answer", errno.ETIMEDOUT)

    rig.listen()
    monkeypatch.setattr(memory_rados.Watch, "close", close)
    kept = weakref.ref(rig.memory.watches.pop())
    rig.origin.close()
    gc.collect()
    found = kept()
    assert found is not None
    assert sys.getrefcount(found) > 2


def test_origin_may_be_closed_twice_and_without_having_been_used() -> None:
    origin = RadosOrigin("data", binding=MemoryRados().binding)
    origin.close()
    origin.close()
