"""Volumes and snapshots of what is lost: taken back, whichever answer is lost on the way."""

from collections.abc import Callable
from unittest import mock

import pytest

from acstor import exception
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore

VOLUME = "0b8cf0b6-1d6d-4d5a-9b6e-2f6f3a1f0c11"
SNAPSHOT = "6a4c1f58-02a9-4a35-8a6f-0a6e0a2f7d10"
SIZE = 1 << 20


@pytest.fixture
def origin() -> FaultyOrigin:
    return FaultyOrigin(MemoryOrigin())


@pytest.fixture
def store(origin: FaultyOrigin) -> VolumeStore:
    return VolumeStore(Repository.init(origin), wait=lambda seconds: None)


def fail(origin: FaultyOrigin, effect: Effect, call: int) -> None:
    """Have one of the next swaps fail."""
    number = origin.calls[Operation.SWAP_REF] + call
    origin.faults.append(Fault(Operation.SWAP_REF, effect, call=number))


def create(store: VolumeStore) -> None:
    store.create(NewVolume(VOLUME, SIZE))


def snapshot(store: VolumeStore) -> None:
    store.snapshot(VOLUME, SNAPSHOT)


Make = Callable[[VolumeStore], None]


def prepare(store: VolumeStore, make: Make) -> None:
    if make is snapshot:
        create(store)


def is_there(store: VolumeStore, make: Make) -> bool:
    if make is snapshot:
        return store.find_snapshot(SNAPSHOT) is not None
    return store.find(VOLUME) is not None


@pytest.mark.parametrize("make", [create, snapshot])
@pytest.mark.parametrize(
    ("effect", "call"), [(Effect.LOST_ANSWER, 1), (Effect.LOST_ANSWER, 2), (Effect.ERROR, 2)]
)
def test_what_is_lost_is_taken_back_whichever_answer_is_lost(
    origin: FaultyOrigin, store: VolumeStore, make: Make, effect: Effect, call: int
) -> None:
    """The objects that it shares are collected between the two claims."""
    prepare(store, make)
    fail(origin, effect, call)
    with (
        mock.patch.object(store, "_claim", side_effect=[[], ["pack"]]),
        pytest.raises(exception.ConflictError),
    ):
        make(store)
    assert not is_there(store, make)


@pytest.mark.parametrize("make", [create, snapshot])
def test_what_was_published_without_an_answer_is_there(
    origin: FaultyOrigin, store: VolumeStore, make: Make
) -> None:
    prepare(store, make)
    fail(origin, Effect.LOST_ANSWER, 1)
    make(store)
    assert is_there(store, make)


@pytest.mark.parametrize("make", [create, snapshot])
def test_what_was_not_published_is_not_there(
    origin: FaultyOrigin, store: VolumeStore, make: Make
) -> None:
    prepare(store, make)
    fail(origin, Effect.ERROR, 1)
    with pytest.raises(exception.UnavailableError):
        make(store)
    assert not is_there(store, make)


def test_what_cannot_be_taken_back_is_named(origin: FaultyOrigin, store: VolumeStore) -> None:
    for call in (2, 3, 4):
        fail(origin, Effect.ERROR, call)
    with (
        mock.patch.object(store, "_claim", side_effect=[[], ["pack"]]),
        pytest.raises(exception.UnavailableError, match=f"volume {VOLUME} may be there"),
    ):
        create(store)
