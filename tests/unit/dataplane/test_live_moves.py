"""Volumes that go to another member of the origin while guests have them open."""

import threading
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.backoff import BackOff
from acstor.dataplane.volumes import reconciler
from acstor.dataplane.volumes.lifecycle.standby import VolumeStandby
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.repository.volumes import doorbells
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.repository.volumes.store import VolumeStore
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.test_volume_members import NAMES, kept, logs_in, origin, stores, written
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest, move_to_second

__all__ = ["origin", "stores"]

_OPERATIONS = (Operation.PUT, Operation.READ, Operation.SIZE, Operation.LIST)


@pytest.fixture
def served(host: HostUnderTest, monkeypatch: pytest.MonkeyPatch) -> HostUnderTest:
    """A host that serves the volume, and looks at its doorbell often."""
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_DOORBELL_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "RETRY", BackOff(first=0.02, longest=0.05))
    host.restart()
    host.open()
    return host


def send(store: VolumeStore, member: str | None) -> None:
    store.assign(VOLUME, member)
    doorbells.ring(store._origin, "h1")


def has_moved(host: HostUnderTest, store: VolumeStore, member: str | None) -> bool:
    record = store.get(VOLUME).record
    is_there = record.member == member and record.owner == "h1" and record.unsealed is None
    return is_there and host.device.state == "open"


def test_volume_moves_under_its_guest_and_back(
    served: HostUnderTest, store: VolumeStore, stores: dict[str, FaultyOrigin]
) -> None:
    words = [written(served)]
    served.device.clients = 1
    unpushed = served.device.write(512)
    send(store, "near")
    wait_for("it goes on in near", lambda: has_moved(served, store, "near"))
    assert served.state == "serving"
    assert served.device.words == [*words, unpushed]
    words = [*words, unpushed, written(served)]
    assert kept(served)["member"] == "near"
    assert set(logs_in(stores["near"])) == {store.get(VOLUME).record.epoch}
    send(store, None)
    wait_for("it goes on in the home", lambda: has_moved(served, store, None))
    words.append(written(served))
    assert served.device.words == words
    assert served.device.clients == 1
    assert logs_in(stores["far"]) == []


def test_volume_stays_while_its_new_member_is_away(
    served: HostUnderTest, store: VolumeStore, stores: dict[str, FaultyOrigin]
) -> None:
    written(served)
    stores["near"].faults = [Fault(one, Effect.ERROR) for one in _OPERATIONS]
    send(store, "near")
    wait_for("near is asked", lambda: stores["near"].hits[Effect.ERROR] > 0)
    written(served)
    record = store.get(VOLUME).record
    assert (record.member, record.owner, record.epoch) == (None, "h1", 1)
    assert served.state == "serving"
    stores["near"].faults = []

    def tries_again() -> bool:
        doorbells.ring(store._origin, "h1")
        return has_moved(served, store, "near")

    wait_for("it goes on in near", tries_again)


def test_member_that_hangs_is_not_waited_for_as_for_a_listing(
    served: HostUnderTest, store: VolumeStore, stores: dict[str, FaultyOrigin]
) -> None:
    """Meanwhile nobody would look at the record: a migration, or another owner, had to wait."""
    before = stores["near"].calls[Operation.LIST]
    stores["near"].faults = [
        Fault(one, Effect.ERROR) for one in _OPERATIONS if one is not Operation.LIST
    ]
    send(store, "near")
    wait_for("near is asked", lambda: stores["near"].hits[Effect.ERROR] > 0)
    assert stores["near"].calls[Operation.LIST] == before
    assert store.get(VOLUME).record.member is None
    assert served.state == "serving"


def test_requests_wait_while_its_old_member_is_away(
    served: HostUnderTest, store: VolumeStore, stores: dict[str, FaultyOrigin]
) -> None:
    """The volume stays where it is, as nothing more can be pushed, and nothing is lost."""
    send(store, "near")
    wait_for("it goes on in near", lambda: has_moved(served, store, "near"))
    word = served.device.write(512)
    stores["near"].faults = [Fault(one, Effect.ERROR) for one in _OPERATIONS]
    before = stores["near"].hits[Effect.ERROR]
    send(store, "far")
    wait_for("near is asked", lambda: stores["near"].hits[Effect.ERROR] > before)
    assert logs_in(stores["far"]) == []
    stores["near"].faults = []

    def tries_again() -> bool:
        doorbells.ring(store._origin, "h1")
        return has_moved(served, store, "far")

    wait_for("it goes on in far", tries_again)
    assert served.device.words == [word]


@pytest.mark.parametrize("is_killed", [False, True])
def test_move_that_was_cut_off_is_gone_on_with(
    served: HostUnderTest,
    store: VolumeStore,
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
) -> None:
    """It was given back, and is not owned anew: the next request fetches it."""
    word = written(served)
    is_refused = threading.Event()

    def refuse(self: VolumeStandby, local: object) -> bool:
        is_refused.set()
        raise exception.UnavailableError("the home is away on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(VolumeStandby, "try_to_acquire", refuse)
        send(store, "near")
        wait_for("it is given back, and not owned anew", is_refused.is_set)
        wait_for("it waits", lambda: served.state == "standby")
    assert store.get(VOLUME).record.owner is None
    if is_killed:
        served.restart()
        wait_for("it is followed", lambda: served.state == "standby")
    served.device.is_wanted = True
    wait_for("it goes on in near", lambda: has_moved(served, store, "near"))
    assert served.device.words == [word]


def test_parts_that_never_leave_their_host_keep_it_there(
    served: HostUnderTest, store: VolumeStore
) -> None:
    store.set_durability(VOLUME, Durability(default=DurabilityClass.NONE))
    send(store, "near")
    heard = doorbells.heard(store._origin, "h1")
    wait_for("the doorbell is heard", lambda: served.plane.volumes.doorbells.heard() == heard)
    record = store.get(VOLUME).record
    local = served.plane.volumes.table.known(VOLUME)
    assert not served.plane.volumes.moves.is_due(local, record)
    assert record.member is None


def test_another_host_takes_over_what_has_moved(
    served: HostUnderTest,
    store: VolumeStore,
    stores: dict[str, FaultyOrigin],
    add_host: Callable[[str], HostUnderTest],
) -> None:
    words = [written(served)]
    send(store, "near")
    wait_for("it goes on in near", lambda: has_moved(served, store, "near"))
    words.append(written(served))
    second = move_to_second(store, add_host)
    assert second.device.words == words
    assert {name for name in NAMES if logs_in(stores[name])} == {"home", "near"}
