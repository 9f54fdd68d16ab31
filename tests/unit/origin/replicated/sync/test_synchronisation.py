"""Copies from member to member, cut off at each step, and gone on with by another process."""

import contextlib
import hashlib
import random
from collections.abc import Mapping, Sequence

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.objects import ReplicatedObjects
from acstor.origin.replicated.placement import Assignments, Placed
from acstor.origin.replicated.sync import change_log, member_copy
from acstor.origin.replicated.sync.budget import Bandwidth, SyncBudget
from acstor.origin.replicated.sync.change_log import CHANGES_PREFIX, Change, ChangeLogWriter
from acstor.origin.replicated.sync.member_copy import MemberCopy, Outcome
from acstor.origin.replicated.sync.pairs import Pair
from acstor.origin.replicated.sync.synchronisation import Synchronisation, SyncReport
from testbed.doubles.virtual_time import VirtualTime
from tests.unit.origin.replicated.stores import PATIENT_SECONDS, LyingOrigin
from tests.unit.repository.interleaving import Killed

AB = Pair("a", "b")
AMPLE = Bandwidth(total=1 << 40, threshold=1 << 40, minimum=1 << 30)
CONTENTS = [random.Random(number).randbytes(100 + number) for number in range(5)]
OBJECTS = {f"packs/{hashlib.sha256(content).hexdigest()}": content for content in CONTENTS}


def check(key: str, content: memoryview, others: base.ObjectStore) -> None:
    if hashlib.sha256(content).hexdigest() != key.rsplit("/", 1)[1]:
        raise exception.CorruptError(f"{key} is not what its name says")


def disk_of(key: str) -> str:
    """Return one of two disks."""
    return "even" if int(key[-1], 16) % 2 == 0 else "odd"


class Leader:
    """A process that leads the synchronisation of some stores."""

    def __init__(
        self,
        stores: Mapping[str, base.Origin],
        *,
        bandwidth: Bandwidth = AMPLE,
        placed: Placed | None = None,
        period_seconds: float = 60.0,
    ) -> None:
        self.clock = VirtualTime()
        self.members = {
            name: Member(name, store, PATIENT_SECONDS, clock=self.clock)
            for name, store in stores.items()
        }
        table = Assignments(placed or Placed(tuple(stores)))
        objects = ReplicatedObjects(self.members, table)
        budgets = {name: SyncBudget(bandwidth, self.clock) for name in stores}
        copy = MemberCopy(objects, budgets, check, verified_share=1.0, wait=self.clock.sleep)
        self.synchronisation = Synchronisation(
            self.members, table, budgets, copy, period_seconds=period_seconds
        )
        self.budgets = budgets

    def period(self, needed: Mapping[str, str] | None = None) -> SyncReport:
        """Look, and copy for a control period."""
        self.synchronisation.look()
        self.clock.now += 1.0
        return self.synchronisation.run_period(needed)


def filled(*stores: base.Origin, objects: Mapping[str, bytes] = OBJECTS) -> None:
    """Store objects, and a log of them, in the first store, which is a."""
    a = stores[0]
    writer = ChangeLogWriter({"a": Member("a", a, PATIENT_SECONDS)}, disk_of)
    for key, content in objects.items():
        a.put_if_absent(key, [content])
        writer.note("a", key, len(content))
    writer.store_due(is_ending=True)


def copied(store: base.ObjectStore) -> dict[str, bytes]:
    return {key: store.get(key, 1 << 20) for key in store.list("packs/")}


def test_all_that_is_owed_is_copied_and_the_log_goes() -> None:
    stores = {name: MemoryOrigin() for name in "abc"}
    filled(stores["a"])
    report = Leader(stores).period()
    assert report.outcomes == {Outcome.COPIED: 2 * len(OBJECTS)}
    assert report.bytes == 2 * sum(map(len, CONTENTS))
    assert report.left_bytes == 0
    assert not report.errors
    assert all(copied(store) == OBJECTS for store in stores.values())
    assert not list(stores["a"].list(CHANGES_PREFIX))


def test_restart_repeats_nothing_that_is_there() -> None:
    a, b = MemoryOrigin(), FaultyOrigin(MemoryOrigin())
    filled(a)
    Leader({"a": a, "b": b}).period()
    filled(a)  # a writer that stores the same again
    before = b.calls[Operation.PUT]
    report = Leader({"a": a, "b": b}).period()
    assert report.outcomes == {Outcome.THERE: len(OBJECTS)}
    assert report.bytes == 0
    assert b.calls[Operation.PUT] == before


class KillingOrigin(FaultyOrigin):
    """Ends the process at one call of all stores that share a countdown.

    :param countdown: calls that are left, in a list of one.
    :param is_late: True if the call takes its effect before.
    """

    def __init__(self, inner: base.Origin, countdown: list[int], *, is_late: bool) -> None:
        super().__init__(inner)
        self._countdown = countdown
        self._is_late = is_late

    def _before(self, operation: Operation, name: str) -> Fault | None:
        self._countdown[0] -= 1
        if self._countdown[0] == 0 and not self._is_late:
            raise Killed
        return super()._before(operation, name)

    def _after(self, fault: Fault | None, name: str, answer: object) -> object:  # type: ignore[override]
        if self._countdown[0] == 0 and self._is_late:
            raise Killed
        return answer


@pytest.mark.parametrize("is_late", [False, True])
def test_whatever_call_it_is_killed_at_another_process_goes_on(is_late: bool) -> None:
    call, is_over = 0, False
    while not is_over:
        call += 1
        a, b = MemoryOrigin(), MemoryOrigin()
        filled(a)
        countdown = [call]
        killing = {
            name: KillingOrigin(store, countdown, is_late=is_late)
            for name, store in (("a", a), ("b", b))
        }
        with contextlib.suppress(Killed):
            Leader(killing).period()
        is_over = countdown[0] > 0
        there = copied(b)
        assert all(OBJECTS[key] == content for key, content in there.items())
        counting = FaultyOrigin(b)
        is_settled = not list(a.list(CHANGES_PREFIX))
        report = Leader({"a": a, "b": counting}).period()
        assert copied(b) == OBJECTS
        assert not list(a.list(CHANGES_PREFIX))
        if not is_settled:
            assert counting.calls[Operation.PUT] == len(OBJECTS) - len(there)
            assert report.outcomes[Outcome.THERE] == len(there)
        else:
            assert there == OBJECTS, "the log went before what it names was there"
    assert call > 5 * len(OBJECTS), "few steps were tried"


@pytest.mark.parametrize("victim", ["a", "b"])
@pytest.mark.parametrize("operation", [Operation.READ, Operation.SIZE, Operation.PUT])
@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
def test_member_that_dies_in_between_is_gone_on_with(
    victim: str, operation: Operation, effect: Effect
) -> None:
    stores = {name: FaultyOrigin(MemoryOrigin()) for name in "ab"}
    filled(stores["a"])
    leader = Leader(stores)
    leader.synchronisation.look()
    stores[victim].calls.clear()
    stores[victim].faults = [Fault(operation, effect, call=number) for number in range(3, 200)]
    report = leader.synchronisation.run_period()
    assert list(stores["a"].list(CHANGES_PREFIX)) or not report.errors
    stores[victim].faults = []
    leader.clock.now += 60.0  # the breaker's time is over
    leader.period()
    assert copied(stores["b"]) == OBJECTS
    assert not list(stores["a"].list(CHANGES_PREFIX))


def test_damaged_object_is_taken_from_another_member() -> None:
    stores = {"a": LyingOrigin(), "b": MemoryOrigin(), "c": MemoryOrigin()}
    key, content = next(iter(OBJECTS.items()))
    log = MemoryOrigin()
    filled(log, objects={key: content})
    for name in log.list(CHANGES_PREFIX):
        stores["c"].put_if_absent(name, [log.get(name, 1 << 20)])
    for name in "ac":
        stores[name].put_if_absent(key, [content])
    leader = Leader(stores)
    leader.synchronisation.backlog.add("a", "disk", Change(key, len(content)))
    report = leader.synchronisation.run_period()
    assert stores["b"].get(key, 1 << 20) == content
    assert report.outcomes[Outcome.COPIED] == 1


def test_object_that_is_damaged_everywhere_is_not_copied_and_stays_owed() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    key = next(iter(OBJECTS))
    filled(a, objects={key: b"rotten"})
    report = Leader({"a": a, "b": b}).period()
    assert report.outcomes == {Outcome.DAMAGED: 1}
    assert report.left_bytes == len(b"rotten")
    assert not b.exists(key)
    assert list(a.list(CHANGES_PREFIX))


def test_target_that_has_something_else_is_left_as_it_is() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    key, content = next(iter(OBJECTS.items()))
    b.put_if_absent(key, [b"!" * len(content)])
    filled(a)
    report = Leader({"a": a, "b": b}).period()
    assert report.outcomes == {Outcome.COPIED: len(OBJECTS) - 1, Outcome.CONFLICT: 1}
    assert b.get(key, 1 << 20) == b"!" * len(content)
    assert list(a.list(CHANGES_PREFIX))


def test_object_that_was_collected_is_owed_no_more() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    filled(a)
    key = next(iter(OBJECTS))
    a.delete(key)
    report = Leader({"a": a, "b": b}).period()
    assert report.outcomes == {Outcome.COPIED: len(OBJECTS) - 1, Outcome.GONE: 1}
    assert not list(a.list(CHANGES_PREFIX))


class DamagingOrigin(MemoryOrigin):
    """Stores something else than it is given."""

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        content = b"".join(base.as_views(buffers))
        return super().put_if_absent(key, [b"?" + content[1:]])


def test_target_that_damages_what_it_stores_is_told() -> None:
    a, b = MemoryOrigin(), DamagingOrigin()
    filled(a)
    report = Leader({"a": a, "b": b}).period()
    assert report.outcomes == {Outcome.CONFLICT: len(OBJECTS)}
    assert list(a.list(CHANGES_PREFIX))


def test_object_that_cannot_be_copied_takes_no_share_until_a_comparison() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    key, content = next(iter(OBJECTS.items()))
    filled(a, objects={key: b"rotten"})
    leader = Leader({"a": a, "b": b})
    assert AB in leader.period().rates
    report = leader.period()
    assert report.rates == {}
    assert report.left_bytes == len(b"rotten")
    a.delete(key)
    a.put_if_absent(key, [content])  # it was restored
    leader.synchronisation.compare()
    assert leader.period().outcomes == {Outcome.COPIED: 1}
    assert b.get(key, 1 << 20) == content
    assert not list(a.list(CHANGES_PREFIX))


def test_object_larger_than_any_is_not_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    filled(a)
    monkeypatch.setattr(member_copy, "OBJECT_SIZE_MAX", 101)
    report = Leader({"a": a, "b": b}).period()
    assert report.outcomes == {Outcome.COPIED: 2, Outcome.DAMAGED: len(OBJECTS) - 2}


def test_full_target_is_told_and_the_rest_stays_owed() -> None:
    a = MemoryOrigin()
    b = FaultyOrigin(
        MemoryOrigin(),
        [Fault(Operation.PUT, Effect.ERROR, call=2, error=exception.ExhaustedError)],
    )
    filled(a)
    report = Leader({"a": a, "b": b}).period()
    assert report.outcomes == {Outcome.COPIED: 1}
    assert AB in report.errors
    assert report.left_bytes > 0


def test_disks_that_are_about_to_move_come_first() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    filled(a)
    leader = Leader({"a": a, "b": b}, bandwidth=Bandwidth(4, 2, 1), period_seconds=1.0)
    backlog = leader.synchronisation.backlog
    for disk in ("odd", "even"):
        leader.synchronisation.look()
        wanted = [key for key in OBJECTS if disk_of(key) == disk]
        order = [change.key for change in backlog.objects(AB, {disk: "b"})]
        assert set(order[: len(wanted)]) == set(wanted)
        assert backlog.demands({disk: "b"})[0].is_needed
        assert not backlog.demands({disk: "a"})[0].is_needed
    report = leader.period({"even": "b"})
    assert report.outcomes == {Outcome.COPIED: 1}, "its rate lets it no more in this period"
    assert {disk_of(key) for key in copied(b)} == {"even"}


def test_rate_is_kept() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    filled(a)
    leader = Leader({"a": a, "b": b}, bandwidth=Bandwidth(1000, 100, 10), period_seconds=1000.0)
    leader.period()
    assert copied(b) == OBJECTS
    read_back = 2 * sum(map(len, CONTENTS))  # the target pays for both
    assert sum(leader.clock.waits) >= read_back / 100 - 5.0


def test_comparison_finds_what_no_log_tells() -> None:
    stores = {name: MemoryOrigin() for name in "abc"}
    for index, (key, content) in enumerate(OBJECTS.items()):
        stores["abc"[index % 3]].put_if_absent(key, [content])
    leader = Leader(stores)
    assert leader.period().rates == {}
    assert leader.synchronisation.compare() == len(OBJECTS)
    leader.clock.now += 1.0
    leader.synchronisation.run_period()
    assert all(copied(store) == OBJECTS for store in stores.values())
    assert leader.synchronisation.compare() == 0


def test_object_that_a_log_and_a_comparison_show_counts_once() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    filled(a)
    total = sum(map(len, CONTENTS))
    for is_compared_first in (False, True):
        leader = Leader({"a": a, "b": b})
        backlog = leader.synchronisation.backlog
        if is_compared_first:
            leader.synchronisation.compare()
        leader.synchronisation.look()
        leader.synchronisation.compare()
        assert backlog.total_bytes == backlog.size_bytes(AB) == total
        by_disk = [backlog.size_bytes(AB, disk) for disk in ("odd", "even")]
        assert sum(by_disk) == total


def test_damaged_segment_wants_a_comparison_and_goes_after_it() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    filled(a)
    key = next(iter(a.list(CHANGES_PREFIX)))
    a.delete(key)
    a.put_if_absent(key, [b"?"])
    leader = Leader({"a": a, "b": b})
    leader.period()
    wanted = [leader.synchronisation.needs_comparison]
    assert a.exists(key)
    leader.synchronisation.compare()
    assert [*wanted, leader.synchronisation.needs_comparison] == [True, False]
    leader.period()
    assert copied(b) == OBJECTS
    assert not a.exists(key)


def test_segment_of_a_newer_release_stays() -> None:
    a, b = MemoryOrigin(), MemoryOrigin()
    filled(a)
    key = next(iter(a.list(CHANGES_PREFIX)))
    content = a.get(key, change_log.SEGMENT_SIZE_MAX)
    a.delete(key)
    a.put_if_absent(key, [content.replace(b'"version": 1', b'"version": 2')])
    leader = Leader({"a": a, "b": b})
    leader.synchronisation.look()
    leader.synchronisation.compare()
    leader.period()
    assert copied(b) == OBJECTS
    assert a.exists(key)


def test_unreachable_member_keeps_nobody_from_the_others() -> None:
    stores = {name: FaultyOrigin(MemoryOrigin()) for name in "abc"}
    filled(stores["a"])
    stores["c"].faults = [Fault(one, Effect.ERROR) for one in Operation]
    leader = Leader(stores)
    with pytest.raises(exception.UnavailableError):
        leader.synchronisation.look()
    leader.clock.now += 1.0
    report = leader.synchronisation.run_period()
    assert copied(stores["b"]) == OBJECTS
    assert Pair("a", "c") in report.errors
    assert list(stores["a"].list(CHANGES_PREFIX)), "c is owed all of it"
