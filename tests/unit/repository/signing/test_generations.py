"""Generations grow: whatever the clock says, and whatever becomes of their ref."""

import json
import pathlib
import threading

import pytest

from acstor import exception
from acstor.origin.base import Origin
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images import generations
from acstor.repository.images.generations import (
    GENERATION_REF,
    GENERATION_VERSION,
    Generations,
)
from acstor.repository.images.signed_record import GENERATION_MAX
from acstor.repository.signing import signed_document
from tests.unit.repository.signing.keys import private, trusted

GOLDEN = pathlib.Path(__file__).parents[3] / "golden" / "image-generation-v1.json"
REPOSITORY = "75d745ee-6122-4977-8a4e-8b187136749e"
NOW = 1795261707.5


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def counting(
    origin: Origin, clock: Clock, number: int = 0, trusting: tuple[int, ...] = (0,)
) -> Generations:
    return Generations(origin, REPOSITORY, private(number), trusted(*trusting), clock)


def put(origin: Origin, content: bytes) -> None:
    ref = origin.get_ref(GENERATION_REF)
    origin.swap_ref(GENERATION_REF, ref.token if ref else None, content)


def statement(number: int = 0, **changes: object) -> bytes:
    fields = {"version": 1, "repository": REPOSITORY, "generation": GENERATION_MAX - 7, **changes}
    return signed_document.sign(fields, generations.DOMAIN, private(number))


def test_ref_version_requires_update(clock: Clock) -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    origin = MemoryOrigin()
    assert GENERATION_VERSION == 1
    assert counting(origin, clock).reserve(1) == int(NOW * 1000)
    ref = origin.get_ref(GENERATION_REF)
    assert ref is not None
    assert ref.content == GOLDEN.read_bytes(), "bump GENERATION_VERSION"
    put(origin, GOLDEN.read_bytes())
    assert counting(origin, clock).reserve(1) == int(NOW * 1000) + 1


def test_blocks_do_not_overlap(clock: Clock) -> None:
    origin = MemoryOrigin()
    counted = counting(origin, clock)
    first = counted.reserve(10)
    assert counted.reserve(5) == first + 10
    assert counted.reserve(1, above=first + 1000) == first + 1001
    assert counted.reserve(1) == first + 1002


def test_clock_that_is_set_back_makes_no_older_ones(clock: Clock) -> None:
    origin = MemoryOrigin()
    first = counting(origin, clock).reserve(1)
    clock.now -= 3600
    assert counting(origin, clock).reserve(1) == first + 1


def test_time_goes_on_above_a_restored_backup(clock: Clock) -> None:
    origin = MemoryOrigin()
    counting(origin, clock).reserve(1)
    saved = origin.get_ref(GENERATION_REF)
    assert saved is not None
    clock.now += 60
    after_backup = counting(origin, clock).reserve(1)
    put(origin, saved.content)
    clock.now += 60
    assert counting(origin, clock).reserve(1) > after_backup


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        statement(1),
        statement(repository="another"),
        statement(generation=0),
        statement(generation="x"),
        statement()[:-2] + b"\n}",
        statement().replace(b'"generation": 9', b'"generation": 8'),
    ],
)
def test_ref_that_is_not_believed_cannot_raise_generations(content: bytes, clock: Clock) -> None:
    """A host that could would leave none for the registrar."""
    origin = MemoryOrigin()
    put(origin, content)
    assert counting(origin, clock).reserve(1) == int(NOW * 1000)
    assert counting(origin, clock).reserve(1) == int(NOW * 1000) + 1, "it was written anew"


def test_ref_of_a_newer_release_is_left_alone(clock: Clock) -> None:
    origin = MemoryOrigin()
    put(origin, statement(version=2))
    with pytest.raises(exception.UnsupportedError):
        counting(origin, clock).reserve(1)


def test_successor_goes_on_where_the_key_before_was(clock: Clock) -> None:
    origin = MemoryOrigin()
    clock.now += 1e6
    first = counting(origin, clock).reserve(1)
    clock.now -= 1e6
    assert counting(origin, clock, 1, (0, 1)).reserve(1) == first + 1
    assert counting(origin, clock, 2, (2,)).reserve(1) < first, "a thief's numbers do not bind"


def test_end_of_the_numbers_is_an_error(clock: Clock) -> None:
    origin = MemoryOrigin()
    put(origin, statement())
    counted = counting(origin, clock)
    assert counted.reserve(7) == GENERATION_MAX - 6
    with pytest.raises(exception.ExhaustedError, match="no generation above"):
        counted.reserve(1)


def test_several_registrars_get_different_ones(clock: Clock) -> None:
    origin = MemoryOrigin()
    found: list[int] = []

    def reserve() -> None:
        counted = counting(origin, clock)
        for _ in range(5):
            found.append(counted.reserve(1))

    threads = [threading.Thread(target=reserve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(found)) == 10


def test_lost_answer_wastes_a_number_and_repeats_none(clock: Clock) -> None:
    origin = FaultyOrigin(MemoryOrigin())
    origin.faults.append(Fault(Operation.SWAP_REF, Effect.LOST_ANSWER, call=1))
    with pytest.raises(exception.UnavailableError):
        counting(origin, clock).reserve(1)
    assert counting(origin, clock).reserve(1) == int(NOW * 1000) + 1
    ref = origin.get_ref(GENERATION_REF)
    assert ref is not None
    assert json.loads(ref.content)["generation"] == int(NOW * 1000) + 1
