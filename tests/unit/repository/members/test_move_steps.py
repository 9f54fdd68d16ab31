"""A move that is killed, or overtaken, after each of its calls; and its owner that comes back."""

import contextlib
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.volumes.epoch_log import sealer_of
from tests.unit.repository.interleaving import Actor
from tests.unit.repository.members.cloud import (
    OBJECT_BYTES,
    VOLUME,
    Cloud,
    FencedWriteError,
    Host,
    PromiseError,
    words_of,
)

STEPS_MAX = 60
OVER = (exception.ConflictError, exception.FencedError, FencedWriteError)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A volume with two words in the home, which is to go to b."""
    with contextlib.closing(Cloud()) as made:
        yield made


def begun(cloud: Cloud) -> Host:
    """Return a host that has written two words in the home; the volume is to go to b."""
    cloud.allow(cloud.store, "x")
    host = cloud.host("x")
    host.acquire()
    for _ in range(2):
        host.write()
    cloud.store.assign(VOLUME, "b")
    return host


def moving(cloud: Cloud) -> Actor:
    """Return a process that goes on in b, and writes a word there."""

    def act(origin: base.Origin) -> None:
        with contextlib.suppress(*OVER):
            host = Host(cloud, "x", origin)
            host.words = 50
            host.acquire()
            host.write()

    return cloud.actor("x", act)


def taking(cloud: Cloud) -> Actor:
    """Return a process of another host that takes the volume over, and writes a word."""

    def act(origin: base.Origin) -> None:
        host = Host(cloud, "y", origin)
        cloud.allow(host.access.records(), "y")
        host.acquire()
        host.write()

    return cloud.actor("y", act)


def steps(actor: Actor, count: int) -> bool:
    """Let a process make so many calls; return whether it has more to do."""
    for _ in range(count):
        if actor.is_done:
            return False
        actor.step()
    return not actor.is_done


def finish(actor: Actor) -> None:
    steps(actor, 1000)
    assert actor.is_done
    assert actor.error is None, actor.error


def writes_in_its_old_epoch(cloud: Cloud, host: Host) -> None:
    """Have an owner that hears of nothing write on; what it is told of counts."""
    with contextlib.suppress(FencedWriteError):
        host.write()


def test_move_that_is_killed_after_any_call() -> None:
    for count in range(STEPS_MAX):
        with contextlib.closing(Cloud()) as cloud:
            old = begun(cloud)
            actor = moving(cloud)
            is_more = steps(actor, count)
            if is_more:
                actor.kill()
            writes_in_its_old_epoch(cloud, old)
            found = cloud.check(count)
            assert found[:2] == ["x1", "x2"]
        if not is_more:
            assert "x51" in found
            return
    pytest.fail("the move takes more calls than are tried")


@pytest.mark.parametrize("is_home_next", [False, True])
def test_take_over_after_any_call_of_a_move(is_home_next: bool) -> None:
    for count in range(STEPS_MAX):
        with contextlib.closing(Cloud()) as cloud:
            old = begun(cloud)
            actor = moving(cloud)
            is_more = steps(actor, count)
            if is_home_next:
                cloud.store.assign(VOLUME, None)
            other = taking(cloud)
            finish(other)
            writes_in_its_old_epoch(cloud, old)
            finish(actor)
            found = cloud.check(count)
            assert "y1" in found
        if not is_more:
            return
    pytest.fail("the move takes more calls than are tried")


def test_move_after_any_call_of_a_take_over() -> None:
    for count in range(STEPS_MAX):
        with contextlib.closing(Cloud()) as cloud:
            begun(cloud)
            other = taking(cloud)
            is_more = steps(other, count)
            actor = moving(cloud)
            finish(actor)
            steps(other, 1000)
            cloud.check(count)
        if not is_more:
            return
    pytest.fail("the take-over takes more calls than are tried")


def test_seal_whose_answer_was_lost_is_found(cloud: Cloud) -> None:
    begun(cloud)
    record = cloud.record()
    heir = cloud.host("x")
    taken = heir.access.records().acquire(VOLUME, "x").after
    seal = sealer_of(cloud.open())
    first = seal(VOLUME, record.epoch, taken.next, taken.unsealed_member)
    assert seal(VOLUME, record.epoch, taken.next, taken.unsealed_member) == first
    assert (1, first[1]) in cloud.logs_in("a")
    assert cloud.logs_in("b") == []
    assert cloud.check() == ["x1", "x2"]


def test_late_object_of_the_old_epoch_lands_nowhere_else(cloud: Cloud) -> None:
    """It is under way when the volume goes on in b: its request names its store."""
    old = begun(cloud)
    key = layout.log_key(VOLUME, old.epoch, old.next)
    cloud.stores["a"].late.append(
        lambda: super(type(cloud.stores["a"]), cloud.stores["a"]).put_if_absent(key, [b"late"])
    )
    mover = cloud.host("x")
    mover.words = 50
    mover.acquire()
    mover.write()
    cloud.stores["a"].deliver(1.0)
    assert cloud.check() == ["x1", "x2", "x51"]
    assert cloud.stores["a"].get(key, OBJECT_BYTES) != b"late", "the seal was there"
    assert not cloud.stores["b"].exists(key)


def test_expectation_finds_a_history_that_is_short(cloud: Cloud) -> None:
    begun(cloud)
    cloud.told.append((1, "x3"))
    with pytest.raises(PromiseError, match="was acknowledged"):
        cloud.check()


def test_volume_is_read_alike_from_any_member_that_has_it(cloud: Cloud) -> None:
    begun(cloud)
    mover = cloud.host("x")
    mover.acquire()
    mover.write()
    cloud.keeping().run()
    logs = cloud.record().closed_until(VOLUME, mover.next - 1)
    for away in ("a", "b", "c"):
        cloud.stores[away].is_away = True
        assert words_of(cloud.open(), logs) == ["x1", "x2", "x1"]
        cloud.stores[away].is_away = False
