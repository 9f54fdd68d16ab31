"""The first sectors of a volume that is moving, read at the standby."""

import dataclasses
import threading
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.dataplane.volumes import reconciler
from acstor.dataplane.volumes.handover import heads as volume_heads
from acstor.origin.memory import MemoryOrigin
from acstor.repository.volumes import heads
from acstor.repository.volumes.heads import Head
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import VolumeStore
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest

SECTORS = b"\xeb\x63" + bytes(4094)


@pytest.fixture
def second(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> HostUnderTest:
    """The standby of a volume that the first host owns and serves."""
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_WATCH_INTERVAL", 0.02)
    host.restart()
    second = add_host("h2")
    host.open()
    host.device.head = SECTORS
    store.begin_standby(VOLUME, "h2")
    second.call("open", role="standby")
    return second


def test_first_sectors_are_read_and_the_volume_stays(
    host: HostUnderTest, second: HostUnderTest, store: VolumeStore, origin: MemoryOrigin
) -> None:
    host.device.write(512)
    second.device.is_head_wanted = True
    wait_for("an answer", lambda: second.device.head_answer)
    assert second.device.head_answer == SECTORS
    record = store.get(VOLUME).record
    assert (record.owner, record.epoch) == ("h1", 1)
    assert (host.state, second.state) == ("serving", "standby")
    assert not second.device.is_head_given_up
    wait_for("nothing stays", lambda: heads.asked(origin, VOLUME) is None)


def test_first_sectors_are_answered_when_little_is_left_to_push(
    host: HostUnderTest,
    second: HostUnderTest,
    origin: MemoryOrigin,
    store: VolumeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """QEMU waits at the destination, and no guest: the migration begins when little is left."""
    is_pushing, may_end = threading.Event(), threading.Event()
    runtime = host.plane.runtime
    assert runtime is not None
    push_ahead = runtime.volume_push_ahead

    def push(volume: str) -> bool:
        is_pushing.set()
        assert may_end.wait(60)
        return push_ahead(volume)

    monkeypatch.setattr(runtime, "volume_push_ahead", push)
    monkeypatch.setattr(volume_heads, "_PATIENCE", 0.5)
    host.device.write(1 << 30)
    try:
        wait_for("it pushes", is_pushing.is_set)
        second.device.is_head_wanted = True
        wait_for("it is heard", lambda: (heads.asked(origin, VOLUME) or Head("")).owner == "h1")
        monkeypatch.setattr(volume_heads, "_PATIENCE", 0.0)
        assert second.device.head_answer is None
    finally:
        may_end.set()
    wait_for("an answer", lambda: second.device.head_answer == SECTORS)
    assert host.device.dirty_bytes == 0
    assert (host.state, store.get(VOLUME).record.owner) == ("serving", "h1")


def test_owner_that_heard_and_was_replaced_is_not_waited_for(
    host: HostUnderTest, second: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = host.plane.runtime
    assert runtime is not None
    is_pushing, may_end = threading.Event(), threading.Event()

    def push(_: str) -> bool:
        is_pushing.set()
        return bool(may_end.wait(60)) and False

    monkeypatch.setattr(runtime, "volume_push_ahead", push)
    monkeypatch.setattr(volume_heads, "_PATIENCE", 0.5)
    host.device.write(1 << 30)
    try:
        wait_for("it pushes", is_pushing.is_set)
        second.device.is_head_wanted = True
        owner = second.plane.volumes.owner
        questions = second.plane.volumes.questions
        wait_for("it is heard", lambda: (questions.asked(VOLUME) or Head("")).owner == "h1")
        monkeypatch.setattr(owner, "record", lambda _: VolumeRecord(1 << 20, None, owner="h3"))
        wait_for("it is given up", lambda: second.device.is_head_given_up)
    finally:
        may_end.set()


def test_owner_that_never_answers_hands_the_volume_over(
    host: HostUnderTest, second: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a release before this one."""
    monkeypatch.setattr(host.plane.volumes.questions, "asked", lambda _: None)
    monkeypatch.setattr(volume_heads, "_PATIENCE", 0.3)
    second.device.is_head_wanted = True
    wait_for("h2 serves", lambda: second.state == "serving")
    assert second.device.is_head_given_up


def test_origin_that_is_away_for_a_moment_is_asked_again(
    second: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = second.plane.volumes
    ask, calls = volumes.questions.ask, []

    def ask_sometimes(volume: str) -> str:
        calls.append(volume)
        if len(calls) < 3:
            raise exception.UnavailableError("the origin is away")
        return ask(volume)

    monkeypatch.setattr(volumes.questions, "ask", ask_sometimes)
    monkeypatch.setattr(volume_heads, "_AWAY_WAIT", 0.05)
    second.device.is_head_wanted = True
    wait_for("an answer", lambda: second.device.head_answer == SECTORS)
    assert len(calls) == 3


def test_volume_that_no_other_host_owns_is_taken(
    host: HostUnderTest, second: HostUnderTest
) -> None:
    """There is nobody to ask: the standby becomes the owner, as for any other request."""
    host.call("close", force=False)
    second.device.is_head_wanted = True
    wait_for("h2 serves", lambda: second.state == "serving")


def test_answer_of_an_owner_that_was_replaced_counts_for_nothing(
    host: HostUnderTest, second: HostUnderTest, store: VolumeStore, origin: MemoryOrigin
) -> None:
    """Content that a third host wrote since may be what is read."""
    questions = second.plane.volumes.questions
    answered = Head("0" * 32, "h1", 1, SECTORS)
    assert questions.current_content(VOLUME, answered) == SECTORS
    assert questions.current_content(VOLUME, dataclasses.replace(answered, owner="h3")) is None
    store.disallow_host(VOLUME, "h1")
    store.acquire(VOLUME, "h2")
    assert questions.current_content(VOLUME, answered) is None
    unsealed = dataclasses.replace(answered, owner="h2", epoch=2)
    assert questions.current_content(VOLUME, unsealed) is None, "the epoch before may grow still"


def test_question_that_stays_goes_with_the_volume(store: VolumeStore, origin: MemoryOrigin) -> None:
    heads.ask(origin, VOLUME)
    store.disallow_host(VOLUME, "h1")
    store.delete(VOLUME)
    assert heads.asked(origin, VOLUME) is None
