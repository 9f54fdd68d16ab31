"""Objects in several members, some of which are lost, slow, full, or lie."""

import hashlib

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Effect, FaultyOrigin, Operation
from acstor.origin.faulty import Fault as OriginFault
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.finding import Fault
from acstor.origin.replicated.member import ESTIMATE_HALF_LIFE_SECONDS
from acstor.origin.replicated.placement import Placed
from acstor.origin.replicated.search import Absence
from testbed.doubles.virtual_time import VirtualTime
from testbed.fixtures.conditions import wait_for
from tests.unit.origin.replicated.stores import (
    HASTY_SECONDS,
    PATIENT_SECONDS,
    FullOrigin,
    HangingOrigin,
    LyingOrigin,
    away,
    replicated,
)

CONTENT = b"content"
NAME = "packs/" + hashlib.sha256(CONTENT).hexdigest()
BY_CONTENT = Placed(("a", "b"), is_content_named=True)
SLOT = "volume-log/1/00000002/0000000000000007"


def check_digest(key: str, content: bytes) -> None:
    if hashlib.sha256(content).hexdigest() != key.rsplit("/", 1)[1]:
        raise exception.CorruptError(f"{key} is not what its name says")


# Storing


def test_object_is_stored_where_it_belongs_and_owed_to_the_others() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    owed: list[tuple[str, str, int]] = []
    objects = replicated(
        {"a": a, "b": b},
        Placed(("b", "a")),
        folders={"volume-log/1/": Placed(("a",))},
        noted=lambda member, key, size: owed.append((member, key, size)),
    )
    assert objects.put_if_absent(NAME, [CONTENT])
    assert objects.put_if_absent(SLOT, [b"log"])
    assert (list(a.list()), list(b.list())) == ([SLOT], [NAME])
    assert owed == [("b", NAME, len(CONTENT))]


def test_as_many_copies_as_the_level_demands_are_stored_first() -> None:
    stores = {name: MemoryOrigin() for name in "abc"}
    objects = replicated(stores, Placed(("a", "b", "c"), copies=2))
    assert objects.put_if_absent(SLOT, [b"log"])
    assert [store.exists(SLOT) for store in stores.values()] == [True, True, False]


def test_copy_that_could_not_be_stored_is_stored_by_the_repeated_call() -> None:
    a, b = MemoryOrigin(), away(MemoryOrigin())
    objects = replicated({"a": a, "b": b}, Placed(("a", "b"), copies=2))
    with pytest.raises(exception.UnavailableError):
        objects.put_if_absent(SLOT, [b"log"])
    b.faults.clear()
    assert not objects.put_if_absent(SLOT, [b"log"])
    assert b.get(SLOT, 3) == b"log"


@pytest.mark.parametrize("kind", ["away", "hanging", "full"])
def test_copies_of_what_is_named_by_its_content_go_to_any_members(kind: str) -> None:
    stores: dict[str, base.Origin] = {"a": MemoryOrigin(), "b": broken(kind), "c": MemoryOrigin()}
    placed = Placed(("a", "b", "c"), copies=2, is_content_named=True)
    assert replicated(stores, placed).put_if_absent(NAME, [CONTENT])
    assert stores["c"].get(NAME, 100) == CONTENT
    placed = Placed(("a", "b", "c"), copies=3, is_content_named=True)
    with pytest.raises((exception.UnavailableError, exception.ExhaustedError)):
        replicated(stores, placed).put_if_absent(NAME, [CONTENT])
    let_go(stores["b"])


def test_slot_is_not_acknowledged_without_the_copy_that_comes_first() -> None:
    stores: dict[str, base.Origin] = {
        "a": MemoryOrigin(), "b": away(MemoryOrigin()), "c": MemoryOrigin()
    }  # fmt: skip
    with pytest.raises(exception.UnavailableError):
        replicated(stores, Placed(("a", "b", "c"), copies=2)).put_if_absent(SLOT, [b"log"])
    assert not stores["c"].exists(SLOT)


def test_slot_that_was_sealed_in_a_copy_fences_its_owner() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    b.put_if_absent(SLOT, [b"seal"])
    objects = replicated({"a": a, "b": b}, Placed(("a", "b"), copies=2))
    with pytest.raises(exception.FencedError):
        objects.put_if_absent(SLOT, [b"log"])


def test_who_lost_the_slot_makes_no_copies_of_what_it_has() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    a.put_if_absent(SLOT, [b"first"])
    objects = replicated({"a": a, "b": b}, Placed(("a", "b"), copies=2))
    assert not objects.put_if_absent(SLOT, [b"other"])
    assert not b.exists(SLOT)


@pytest.mark.parametrize("kind", ["away", "hanging", "full"])
def test_slot_is_never_stored_elsewhere_than_in_the_member_of_its_epoch(kind: str) -> None:
    a, b = broken(kind), MemoryOrigin()
    objects = replicated({"a": a, "b": b}, Placed(("a", "b")))
    with pytest.raises((exception.UnavailableError, exception.ExhaustedError)):
        objects.put_if_absent(SLOT, [b"log"])
    assert not list(b.list())
    let_go(a)


@pytest.mark.parametrize("kind", ["away", "hanging", "full"])
def test_object_named_by_its_content_goes_to_the_next_member(kind: str) -> None:
    a, b = broken(kind), MemoryOrigin()
    owed: list[str] = []
    objects = replicated(
        {"a": a, "b": b}, BY_CONTENT, noted=lambda member, key, size: owed.append(member)
    )
    assert not objects.put_if_absent(NAME, [CONTENT]), "the first may have had it"
    assert b.get(NAME, 100) == CONTENT
    assert owed == ["b"]
    expected = Fault.FULL if kind == "full" else Fault.UNREACHABLE
    assert objects.faults == {("a", expected): 1}
    let_go(a)


def test_object_that_no_member_takes_is_an_error() -> None:
    with pytest.raises(exception.ExhaustedError):
        replicated({"a": FullOrigin(), "b": FullOrigin()}, BY_CONTENT).put_if_absent(NAME, [b""])


def test_put_that_is_late_stores_what_was_given() -> None:
    """The caller's buffer may change once the call has returned, also by an error."""
    inner = MemoryOrigin()
    store = HangingOrigin(inner)
    buffer = bytearray(b"before")
    with pytest.raises(exception.DeadlineError):
        replicated({"a": store, "b": MemoryOrigin()}).put_if_absent(SLOT, [buffer])
    buffer[:] = b"after!"
    store.gate.set()
    wait_for("the late object", lambda: inner.exists(SLOT))
    assert inner.get(SLOT, 6) == b"before"


# Reading


def broken(kind: str) -> base.Origin:
    """Return a store that fails in one of the ways that stores do."""
    inner = MemoryOrigin()
    if kind == "full":
        return FullOrigin()
    return away(inner) if kind == "away" else HangingOrigin(inner)


def let_go(store: base.Origin) -> None:
    """Let threads end that wait for a store."""
    if isinstance(store, HangingOrigin):
        store.gate.set()


@pytest.mark.parametrize("kind", ["away", "hanging"])
def test_read_falls_to_the_next_member(kind: str) -> None:
    a, b = broken(kind), MemoryOrigin()
    b.put_if_absent(NAME, [CONTENT])
    objects = replicated({"a": a, "b": b})
    assert objects.get(NAME, 100) == CONTENT
    assert objects.get_range(NAME, 2, 3) == CONTENT[2:5]
    assert objects.size(NAME) == len(CONTENT)
    buffer = memoryview(bytearray(10))
    assert objects.readinto(NAME, 4, buffer) == 3
    let_go(a)


@pytest.mark.parametrize("kind", ["away", "hanging"])
def test_unreachable_member_makes_nothing_not_found(kind: str) -> None:
    a = broken(kind)
    objects = replicated({"a": a, "b": MemoryOrigin()}, Placed(("b",)))
    for call in (
        lambda: objects.get(NAME, 100),
        lambda: objects.size(NAME),
        lambda: objects.exists(NAME),
        lambda: objects.get_range(NAME, 0, 1),
        lambda: list(objects.list()),
        lambda: objects.delete(NAME),
    ):
        with pytest.raises(exception.UnavailableError):
            call()
    assert Absence.ABSENT not in objects.absences
    assert objects.absences[Absence.UNKNOWN]
    let_go(a)


def test_member_that_is_left_alone_after_failures_is_unreachable_still() -> None:
    a = away(MemoryOrigin())
    objects = replicated({"a": a, "b": MemoryOrigin()})
    for _ in range(10):
        with pytest.raises(exception.UnavailableError):
            objects.size(NAME)
    assert sum(a.calls.values()) < 10


def test_meanings_of_not_found_are_told_apart() -> None:
    stores = {name: MemoryOrigin() for name in "ab"}
    stores["a"].put_if_absent("owed/x", [b"x"])
    stores["a"].put_if_absent("moved/x", [b"x"])
    stores["a"].put_if_absent("elsewhere/x", [b"x"])
    objects = replicated(
        stores,
        folders={
            "owed/": Placed(("b",)),
            "moved/": Placed(("b",), is_moving=True),
            "elsewhere/": Placed(("a",)),
        },
    )
    for folder in ("owed", "moved", "elsewhere"):
        assert objects.get(f"{folder}/x", 1) == b"x"
    with pytest.raises(exception.NotFoundError, match="no member"):
        objects.get("owed/y", 1)
    assert objects.absences == {Absence.NOT_SYNCED: 1, Absence.MOVING: 1, Absence.ABSENT: 1}


def test_lying_member_is_passed_over_and_counted() -> None:
    stores = {"a": LyingOrigin(), "b": MemoryOrigin()}
    for store in stores.values():
        store.put_if_absent(NAME, [CONTENT])
    objects = replicated(stores, check=check_digest)
    for _ in range(3):
        assert objects.get(NAME, 100) == CONTENT
    assert objects.faults["a", Fault.CORRUPT] >= 1
    assert ("b", Fault.CORRUPT) not in objects.faults


def test_object_that_is_damaged_everywhere_is_corrupt() -> None:
    stores = {"a": LyingOrigin(), "b": LyingOrigin()}
    for store in stores.values():
        store.put_if_absent(NAME, [CONTENT])
    with pytest.raises(exception.CorruptError, match="not what its name says"):
        replicated(stores, check=check_digest).get(NAME, 100)


def test_object_that_is_cut_off_in_one_member_is_read_from_another() -> None:
    stores = {"a": MemoryOrigin(), "b": MemoryOrigin()}
    stores["a"].put_if_absent(NAME, [CONTENT[:2]])
    stores["b"].put_if_absent(NAME, [CONTENT])
    objects = replicated(stores)
    buffer = memoryview(bytearray(len(CONTENT)))
    outcomes = objects.read_many([base.ReadRange(NAME, 0, buffer)])
    assert list(outcomes) == [None]
    assert bytes(buffer) == CONTENT


def test_slow_member_is_asked_second_until_its_estimate_fades() -> None:
    clock = VirtualTime()
    slow = FaultyOrigin(
        MemoryOrigin(),
        [OriginFault(Operation.READ, Effect.DELAY, delay_seconds=5.0)],
        sleep=clock.sleep,
    )
    quick = FaultyOrigin(
        MemoryOrigin(),
        [OriginFault(Operation.READ, Effect.DELAY, delay_seconds=0.01)],
        sleep=clock.sleep,
    )
    stores = {"a": slow, "b": quick}
    for store in stores.values():
        store.put_if_absent(NAME, [CONTENT])
    objects = replicated(stores, clock=clock)
    for _ in range(20):
        assert objects.get_range(NAME, 0, 1) == CONTENT[:1]
    asked = slow.calls[Operation.READ]
    assert asked == 1, "once, to find out"
    assert stores["b"].calls[Operation.READ] == 19
    clock.now += 20 * ESTIMATE_HALF_LIFE_SECONDS
    for _ in range(2):
        objects.get_range(NAME, 0, 1)
    assert slow.calls[Operation.READ] == asked + 1, "it may be fast by now"


def test_slow_member_that_alone_should_have_an_object_is_asked_first() -> None:
    clock = VirtualTime()
    slow = FaultyOrigin(
        MemoryOrigin(),
        [OriginFault(Operation.READ, Effect.DELAY, delay_seconds=5.0)],
        sleep=clock.sleep,
    )
    slow.put_if_absent(NAME, [CONTENT])
    other = FaultyOrigin(MemoryOrigin())
    objects = replicated({"a": slow, "b": other}, Placed(("a",)), clock=clock)
    for _ in range(3):
        objects.get_range(NAME, 0, 1)
    assert not other.calls[Operation.READ]


def test_ranges_of_one_member_are_one_call_and_what_it_lacks_goes_to_the_next() -> None:
    stores = {"a": FaultyOrigin(MemoryOrigin()), "b": FaultyOrigin(MemoryOrigin())}
    for number in range(4):
        stores["ab"[number % 2]].put_if_absent(f"packs/{number}", [bytes([number]) * 8])
    stores["a"].put_if_absent("packs/short", [b"12"])
    stores["b"].put_if_absent("packs/short", [b"123456789"])
    objects = replicated(stores)
    names = [*map(str, range(4)), "none", "short", "UPPER"]
    ranges = [base.ReadRange(f"packs/{name}", 1, memoryview(bytearray(b"?" * 7))) for name in names]
    outcomes = objects.read_many(ranges)
    assert list(outcomes[:4]) == [None] * 4
    assert [bytes(one.buffer) for one in ranges[:4]] == [bytes([n]) * 7 for n in range(4)]
    assert isinstance(outcomes[4], exception.NotFoundError)
    assert outcomes[5] is None
    assert bytes(ranges[5].buffer) == b"2345678"
    assert isinstance(outcomes[6], exception.InvalidError)
    assert objects.absences[Absence.ABSENT] == 1
    assert objects.faults == {("a", Fault.CORRUPT): 1}


@pytest.mark.parametrize("kind", ["away", "hanging"])
def test_ranges_of_a_member_that_does_not_answer_are_read_from_the_next(kind: str) -> None:
    a, b = broken(kind), MemoryOrigin()
    b.put_if_absent(NAME, [CONTENT])
    buffer = memoryview(bytearray(len(CONTENT)))
    lacking = base.ReadRange("packs/none", 0, memoryview(bytearray(1)))
    objects = replicated({"a": a, "b": b})
    outcomes = objects.read_many([base.ReadRange(NAME, 0, buffer), lacking])
    assert outcomes[0] is None
    assert bytes(buffer) == CONTENT
    assert isinstance(outcomes[1], exception.UnavailableError)
    assert objects.members["a"].reading.failures == 1, "it is one call"
    let_go(a)


def test_deadline_of_many_reads_ends_a_member_that_hangs() -> None:
    store = HangingOrigin(MemoryOrigin())
    objects = replicated({"a": store, "b": MemoryOrigin()})
    objects.members["a"].seconds_max = PATIENT_SECONDS
    one = base.ReadRange(NAME, 0, memoryview(bytearray(1)))
    assert isinstance(objects.read_many([one], HASTY_SECONDS)[0], exception.DeadlineError)
    store.gate.set()


def test_deadline_of_many_reads_counts() -> None:
    objects = replicated({"a": MemoryOrigin(), "b": MemoryOrigin()})
    one = base.ReadRange(NAME, 0, memoryview(bytearray(1)))
    assert isinstance(objects.read_many([one], 0.0)[0], exception.DeadlineError)


# Listing and deleting


def test_listing_is_that_of_all_members() -> None:
    stores = {"a": MemoryOrigin(), "b": MemoryOrigin()}
    stores["a"].put_if_absent("packs/1", [b""])
    for name in ("packs/1", "packs/2", "format"):
        stores["b"].put_if_absent(name, [b""])
    objects = replicated(stores)
    assert sorted(objects.list("packs/")) == ["packs/1", "packs/2"]
    assert sorted(objects.list_protected("packs/")) == ["packs/1"], "the others' are copies"


def test_object_is_deleted_last_where_it_is_decided() -> None:
    a, b = MemoryOrigin(), away(MemoryOrigin())
    a.put_if_absent(SLOT, [b"log"])
    objects = replicated({"a": a, "b": b}, Placed(("a", "b")))
    with pytest.raises(exception.UnavailableError):
        objects.delete(SLOT)
    assert a.exists(SLOT)
    b.faults.clear()
    assert objects.delete(SLOT)
    assert not objects.delete(SLOT)
    assert not objects.exists(SLOT)


def test_room_is_that_of_the_member_that_is_put_to_first() -> None:
    stores = {name: FaultyOrigin(MemoryOrigin()) for name in "ab"}
    assert replicated(stores).space() is None
    stores["a"].room = base.Space(5, 10)
    stores["b"].room = base.Space(3, 100)
    assert replicated(stores).space() == base.Space(5, 10)
