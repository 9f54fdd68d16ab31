"""Ranges that are read at the same time: bounds, deadlines, and errors of one of them."""

import concurrent.futures
from collections.abc import Iterator, Sequence

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados import batch
from acstor.origin.rados.origin import RadosOrigin
from testbed.doubles.faulty_rados import FaultyRados, ReadFault
from testbed.doubles.memory_rados import MemoryRados
from testbed.fixtures.conditions import wait_for

STRIPE = 4 << 20
LARGE = bytes(range(256)) * (9 << 12)
KEYS = [f"packs/aa/{number}" for number in range(20)]
OTHER = b"?"


class Rig:
    """Origin over memory, whose reads can fail, or have no answer."""

    def __init__(self) -> None:
        self.memory = MemoryRados()
        self.faulty = FaultyRados(self.memory)
        self.origin = RadosOrigin("pool", binding=self.faulty.binding)
        for key in KEYS:
            self.origin.put_if_absent(key, [key.encode()])
        self.origin.put_if_absent("packs/aa/large", [LARGE])
        self.pool = concurrent.futures.ThreadPoolExecutor(1)

    def start(
        self, ranges: Sequence[base.ReadRange], deadline: float | None = 60.0
    ) -> "concurrent.futures.Future[Sequence[exception.AcstorError | None]]":
        """Read on another thread."""
        return self.pool.submit(self.origin.read_many, ranges, deadline)

    def wait_silent(self, count: int) -> None:
        """Wait until so many reads have no answer."""
        wait_for("the reads", lambda: self.faulty.silent_count >= count or None)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.faulty.read_faults = {}
    made.faulty.answer()
    made.pool.shutdown()


def whole(*keys: str) -> list[base.ReadRange]:
    return [base.ReadRange(key, 0, memoryview(bytearray(OTHER * len(key)))) for key in keys]


def large(*places: tuple[int, int]) -> list[base.ReadRange]:
    return [
        base.ReadRange("packs/aa/large", offset, memoryview(bytearray(OTHER * size)))
        for offset, size in places
    ]


def is_filled(one: base.ReadRange) -> bool:
    content = LARGE if one.key == "packs/aa/large" else one.key.encode()
    return bytes(one.buffer) == content[one.offset :][: len(one.buffer)]


def is_untouched(one: base.ReadRange) -> bool:
    return bytes(one.buffer) == OTHER * len(one.buffer)


def test_ranges_of_several_objects_are_under_way_at_the_same_time(rig: Rig) -> None:
    rig.faulty.read_faults = {"packs/": ReadFault.SILENCE}
    ranges = whole(*KEYS)
    started = rig.start(ranges)
    rig.wait_silent(len(KEYS))
    rig.faulty.answer()
    assert list(started.result()) == [None] * len(KEYS)
    assert all(map(is_filled, ranges))
    assert len(rig.faulty.reads) == len(KEYS)


def test_ranges_of_one_object_share_its_head_and_are_read_with_others(rig: Rig) -> None:
    ranges = [*large((0, 10), (STRIPE - 5, 10), (2 * STRIPE + 7, 300)), *whole(KEYS[0])]
    assert not any(rig.origin.read_many(ranges, 60.0))
    assert all(map(is_filled, ranges))
    heads = [name for name in rig.faulty.reads if name == "packs/aa/large"]
    assert len(heads) == 2  # one with the bytes at the start that a small object would have
    rig.faulty.reads.clear()
    rig.faulty.read_faults = {"": ReadFault.SILENCE}
    again = [*large((0, 10), (STRIPE - 5, 10), (2 * STRIPE + 7, 300)), *whole(KEYS[0])]
    started = rig.start(again)
    rig.wait_silent(5)  # four pieces of stripes, as the head is known, and a small object
    rig.faulty.answer()
    assert not any(started.result())
    assert all(map(is_filled, again))


def test_range_that_fails_leaves_the_others_alone(rig: Rig) -> None:
    ranges = [*large((0, 10), (STRIPE, 10)), *whole(KEYS[0], "packs/aa/none", KEYS[1])]
    rig.origin.read_many(large((0, 1)))
    rig.faulty.read_faults = {".1": ReadFault.ERROR, KEYS[1]: ReadFault.TIME_OUT}
    found = rig.origin.read_many(ranges, 60.0)
    assert [type(one) for one in found] == [
        type(None), exception.UnavailableError, type(None), exception.NotFoundError,
        exception.UnavailableError,
    ]  # fmt: skip
    assert "packs/aa/large" in str(found[1])
    assert KEYS[1] in str(found[4])
    assert [is_filled(one) for one in ranges] == [True, False, True, False, False]
    assert is_untouched(ranges[1])


def test_answers_after_the_deadline_are_written_nowhere(rig: Rig) -> None:
    rig.faulty.read_faults = {KEYS[1]: ReadFault.SILENCE}
    ranges = whole(KEYS[0], KEYS[1], KEYS[2])
    found = rig.start(ranges, 0.2).result()
    assert [type(one) for one in found] == [type(None), exception.DeadlineError, type(None)]
    assert KEYS[1] in str(found[1])
    rig.faulty.answer()
    assert [is_filled(one) for one in ranges] == [True, False, True]
    assert is_untouched(ranges[1])


def test_reads_of_one_call_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "IN_FLIGHT_MAX", 4)
    rig.faulty.read_faults = {"packs/": ReadFault.SILENCE}
    ranges = whole(*KEYS)
    started = rig.start(ranges)
    for answered in range(0, len(KEYS), 4):
        rig.wait_silent(4)
        assert len(rig.faulty.reads) == answered + 4
        rig.faulty.answer()
    assert not any(started.result())
    assert all(map(is_filled, ranges))


def test_bytes_of_one_call_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "IN_FLIGHT_BYTES", STRIPE)
    rig.origin.read_many(large((0, 1)))
    rig.faulty.reads.clear()
    rig.faulty.read_faults = {"packs/": ReadFault.SILENCE}
    ranges = large((0, len(LARGE)))
    started = rig.start(ranges)
    for count in (1, 2, 3):
        rig.wait_silent(1)
        assert len(rig.faulty.reads) == count
        rig.faulty.answer()
    assert not any(started.result())
    assert all(map(is_filled, ranges))


def test_reads_that_were_given_up_count_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "IN_FLIGHT_ALL_MAX", 2)
    rig = Rig()
    rig.faulty.read_faults = {"packs/": ReadFault.SILENCE}
    assert all(rig.start(whole(*KEYS[:2]), 0.1).result())
    assert all(rig.start(whole(KEYS[2]), 0.1).result())
    assert rig.faulty.silent_count == 2
    rig.faulty.read_faults = {}
    rig.faulty.answer()
    assert not any(rig.start(whole(*KEYS)).result())
    rig.pool.shutdown()


def test_nothing_is_begun_after_one_had_no_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "IN_FLIGHT_MAX", 4)
    rig.faulty.read_faults = {KEYS[0]: ReadFault.TIME_OUT, "packs/": ReadFault.SILENCE}
    started = rig.start(whole(*KEYS))
    rig.wait_silent(3)
    rig.faulty.answer()
    found = started.result()
    assert [one is None for one in found] == [False, True, True, True] + [False] * 16
    assert all(one.is_transient for one in found if one is not None)
    assert len(rig.faulty.reads) == 4


def test_stripe_that_is_empty_is_corrupt_although_the_binding_hands_out_its_memory(
    rig: Rig,
) -> None:
    for place in rig.memory.stored:
        if place[2].endswith(".2"):
            rig.memory.stored[place] = b""
    (found,) = rig.origin.read_many(large((0, len(LARGE))))
    assert isinstance(found, exception.CorruptError)
    with pytest.raises(exception.CorruptError, match="cut off"):
        rig.origin.get_range("packs/aa/large", 0, len(LARGE))
