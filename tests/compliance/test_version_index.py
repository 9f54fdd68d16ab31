"""One suite for indexes of versions, and for rebuilding them."""

import datetime
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import (
    Consistency,
    DeltaCounts,
    DiskKind,
    DiskName,
    Trigger,
    VersionRecord,
)
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.repository.volumes.record import SnapshotRecord
from acstor.versions.database import index_refresh
from acstor.versions.database.opening import stores_of
from acstor.versions.database.tasks import Position
from acstor.versions.database.version_index import (
    Filter,
    FilterValue,
    IndexedVersion,
    Operator,
    SortKey,
    Usage,
    VersionField,
    VersionIndex,
    VersionQuery,
    position_of,
)
from testbed.doubles.faulty_calls import CallFault, FaultyCalls
from testbed.doubles.faulty_database import FaultyDatabase, SetClock
from tests.compliance.databases import DATABASES, new_clock
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.versions.captures import store_of
from tests.unit.repository.versions.records import (
    HOUR,
    NOON,
    SERVER,
    VOLUME,
    captured,
    committed,
    version_id,
)


@pytest.fixture
def clock() -> SetClock:
    return new_clock()


@pytest.fixture(params=sorted(DATABASES))
def database(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, clock: SetClock
) -> Iterator[FaultyDatabase]:
    opened = DATABASES[request.param](tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def index(database: FaultyDatabase) -> VersionIndex:
    return stores_of(database).versions


def row(number: int, **fields: Any) -> IndexedVersion:
    fields.setdefault("created_at", NOON + number * HOUR)
    return IndexedVersion.of(version_id(number), committed(**fields))


def numbers(rows: list[IndexedVersion]) -> list[int]:
    return [int(one.id[:1], 16) for one in rows]


def test_row_has_all_of_the_record(index: VersionIndex) -> None:
    record = committed(
        name="nightly ä",
        trigger=Trigger.SCHEDULE,
        consistency=Consistency.FS,
        parent=version_id(2),
        base_image=version_id(3),
        nvram="ab" * 32,
        group=version_id(4),
        group_size=2,
        schedule=version_id(5),
        slot="2026-11-26",
        expires_at=NOON + HOUR,
        lock=Lock("audit", None),
        labels={"a": "b"},
        delta=DeltaCounts(stored_bytes=5, shared_bytes=7),
        uses=("image/x",),
    )
    version = IndexedVersion.of(version_id(1), record)
    index.put(version)
    assert index.find(version_id(1)) == version
    assert (version.server, version.volume, version.is_restorable) == (SERVER, None, True)
    assert (version.has_nvram, version.has_vtpm, version.is_used) == (True, False, True)
    assert (version.unique_bytes, version.shared_bytes) == (5, 7)


def test_capture_of_a_volume_is_a_row(index: VersionIndex) -> None:
    record = captured(disk=DiskName(DiskKind.VOLUME, VOLUME), lock=Lock("", NOON + HOUR))
    version = IndexedVersion.of(version_id(1), record)
    index.put(version)
    assert index.find(version_id(1)) == version
    assert (version.volume, version.host, version.is_restorable) == (VOLUME, "h1", False)


def test_row_is_replaced_and_removed(index: VersionIndex) -> None:
    index.put(row(1, name="a"))
    index.put(row(1, name="b"))
    found = index.find(version_id(1))
    assert found is not None
    assert found.name == "b"
    index.remove(version_id(1))
    index.remove(version_id(1))
    assert index.find(version_id(1)) is None


def test_version_of_another_project_is_not_found(index: VersionIndex) -> None:
    index.put(row(1, project="p1"))
    assert index.find(version_id(1), "p1") is not None
    assert index.find(version_id(1), "p2") is None
    assert index.page(VersionQuery(project="p2")) == []


@pytest.mark.parametrize("key", SortKey)
@pytest.mark.parametrize("is_descending", [False, True])
def test_pages_are_the_list(index: VersionIndex, key: SortKey, is_descending: bool) -> None:
    for number in range(1, 8):
        same = number // 3
        index.put(
            row(number, created_at=NOON + same * HOUR, name=f"n{same}", size_bytes=512 << same)
        )
    whole = numbers(index.page(VersionQuery(sort_key=key, is_descending=is_descending)))
    assert whole == sorted(range(1, 8), reverse=is_descending)
    found: list[int] = []
    after: Position | None = None
    while page := index.page(
        VersionQuery(sort_key=key, is_descending=is_descending, limit=2, after=after)
    ):
        found += numbers(page)
        after = position_of(page[-1], key)
        index.remove(page[-1].id)
    assert found == whole


def one(field: VersionField, operator: Operator, *values: FilterValue) -> Filter:
    return Filter(field, operator, values)


F, OP = VersionField, Operator


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (one(F.NAME, OP.EQ, "a"), [1]),
        (one(F.NAME, OP.NEQ, "a"), [2, 3]),
        (one(F.NAME, OP.IN, "a", "b"), [1, 2]),
        (one(F.NAME, OP.NIN, "a", "b"), [3]),
        (one(F.SERVER, OP.EQ, SERVER), [1, 2]),
        (one(F.SERVER, OP.NEQ, SERVER), [3]),
        (one(F.VOLUME, OP.EQ, VOLUME), [3]),
        (one(F.DISK, OP.EQ, "vda"), [1, 2]),
        (one(F.STATE, OP.EQ, "committed"), [1, 2, 3]),
        (one(F.TRIGGER, OP.EQ, "schedule"), [2]),
        (one(F.CONSISTENCY, OP.EQ, "fs"), [2]),
        (one(F.GROUP, OP.EQ, version_id(9)), [1]),
        (one(F.LOCKED, OP.EQ, True), [2, 3]),
        (one(F.LOCKED, OP.EQ, False), [1]),
        (one(F.LOCKED, OP.NEQ, True), [1]),
        (one(F.CREATED_AT, OP.GT, NOON + HOUR), [2, 3]),
        (one(F.CREATED_AT, OP.LTE, NOON + HOUR), [1]),
        (one(F.EXPIRES_AT, OP.LT, NOON + 9 * HOUR), [1]),
        (one(F.SIZE_BYTES, OP.GTE, 1 << 20), [1, 2, 3]),
        (one(F.UNIQUE_BYTES, OP.GT, 4), [3]),
    ],
)
def test_filters(index: VersionIndex, condition: Filter, expected: list[int]) -> None:
    index.put(row(1, name="a", group=version_id(9), expires_at=NOON + HOUR))
    index.put(
        row(
            2,
            name="b",
            trigger=Trigger.SCHEDULE,
            consistency=Consistency.FS,
            lock=Lock("", NOON + HOUR),
        )
    )
    index.put(
        row(
            3,
            name="c",
            disk=DiskName(DiskKind.VOLUME, VOLUME),
            lock=Lock(),
            delta=DeltaCounts(stored_bytes=5),
        )
    )
    index.put(row(4, name="a", state=VersionState.CONDEMNED, uses=("image/x",)))
    query = VersionQuery(filters=(condition,), is_descending=False)
    assert numbers(index.page(query)) == expected


def test_lock_that_is_over_locks_no_more(index: VersionIndex, clock: SetClock) -> None:
    index.put(row(1, lock=Lock("", NOON + HOUR)))
    query = VersionQuery(filters=(one(F.LOCKED, OP.EQ, True),))
    assert numbers(index.page(query)) == [1]
    clock.advance(hours=1)
    assert index.page(query) == []


@pytest.mark.parametrize(
    "condition",
    [
        one(F.NAME, OP.EQ),
        one(F.NAME, OP.EQ, "a", "b"),
        one(F.NAME, OP.IN, *map(str, range(101))),
        one(F.NAME, OP.EQ, 5),
        one(F.LOCKED, OP.GT, True),
        one(F.CREATED_AT, OP.EQ, datetime.datetime(2026, 1, 1)),
    ],
)
def test_senseless_filters_are_refused(index: VersionIndex, condition: Filter) -> None:
    with pytest.raises(exception.InvalidError):
        index.page(VersionQuery(filters=(condition,)))


def test_marker_of_another_order_is_refused(index: VersionIndex) -> None:
    with pytest.raises(exception.InvalidError, match="marker"):
        index.page(VersionQuery(after=Position("name", version_id(1))))


def test_condemned_versions_count_for_nobody(index: VersionIndex) -> None:
    delta = DeltaCounts(stored_bytes=5, shared_bytes=7)
    index.put(row(1, project="p1", delta=delta))
    index.put(row(2, project="p1"))
    index.put(row(3, project="p1", delta=delta, state=VersionState.CONDEMNED, uses=("image/x",)))
    index.put(row(4, project="p2", delta=delta))
    assert index.usage("p1") == Usage(2, 5, 7)
    assert index.usage("p3") == Usage()
    shown = index.page(VersionQuery(project="p1", shows_condemned=True, is_descending=False))
    assert numbers(shown) == [1, 2, 3]


# Rebuilding


@pytest.fixture
def store() -> VersionStore:
    return store_of(Repository.init(MemoryOrigin(), CHUNK_SIZE))


def contents(index: VersionIndex) -> list[IndexedVersion]:
    return index.page(VersionQuery(shows_condemned=True, is_descending=False))


def test_dropped_index_is_rebuilt_as_it_was(index: VersionIndex, store: VersionStore) -> None:
    origin = store.repository.origin
    for number in range(1, 15):
        store.publish(version_id(number), committed(name=f"v{number}"))
        index_refresh.refresh(index, origin, version_id(number))
    store.begin_use(version_id(2), "image/x")
    store.delete(version_id(2))
    store.delete(version_id(3))
    for number in (2, 3):
        index_refresh.refresh(index, origin, version_id(number))
    before = contents(index)
    assert len(before) == 13
    for one_row in before[3:]:
        index.remove(one_row.id)
    report = index_refresh.rebuild(index, origin)
    assert (report.unchanged, report.written, report.removed) == (3, 10, 0)
    assert contents(index) == before
    again = index_refresh.rebuild(index, origin)
    assert (again.unchanged, again.written) == (13, 0)


def test_rebuild_puts_right_what_is_old(index: VersionIndex, store: VersionStore) -> None:
    origin = store.repository.origin
    store.publish(version_id(1), committed())
    index_refresh.refresh(index, origin, version_id(1))
    store.describe(version_id(1), name="new")
    index.put(row(2))
    report = index_refresh.rebuild(index, origin)
    assert (report.written, report.removed) == (1, 1)
    assert [found.name for found in contents(index)] == ["new"]


def test_snapshot_is_a_row_that_its_volume_shows(index: VersionIndex, store: VersionStore) -> None:
    origin, name = store.repository.origin, layout.snapshot_ref(version_id(2))
    store.publish(version_id(1), committed(disk=DiskName(DiskKind.VOLUME, VOLUME)))
    record = SnapshotRecord(VOLUME, 512, None, created_at="2026-11-26T11:00:00+00:00", name="s")
    token = origin.swap_ref(name, None, record.encode())
    assert index_refresh.rebuild(index, origin).written == 2
    again = index_refresh.rebuild(index, origin)
    assert (again.unchanged, again.written) == (2, 0)
    found = index.find(version_id(2))
    assert found is not None
    assert (found.is_snapshot, found.volume, found.project) == (True, VOLUME, "")
    for project in (None, found.project, "p"):
        known = {one.id for one in index.page(VersionQuery(project=project))}
        assert version_id(2) not in known
        query = VersionQuery(project=project, snapshots_of=VOLUME)
        assert {one.id for one in index.page(query)} == known | {version_id(2)}
    assert index.page(VersionQuery(project="p", snapshots_of=SERVER)) == []
    origin.swap_ref(name, token, None)
    assert index_refresh.rebuild(index, origin).removed == 1
    assert index.find(version_id(2)) is None


def test_rebuild_passes_over_what_it_cannot_read(index: VersionIndex, store: VersionStore) -> None:
    origin = store.repository.origin
    store.publish(version_id(2), committed())
    origin.swap_ref(layout.version_ref(version_id(1)), None, b"nonsense")
    report = index_refresh.rebuild(index, origin)
    assert (report.written, report.unreadable) == (1, (version_id(1),))


def test_change_between_reading_and_writing_is_seen(
    index: VersionIndex, store: VersionStore
) -> None:
    """Somebody changes the record after it was read, and writes the row before we do."""
    origin = store.repository.origin
    store.publish(version_id(1), committed(name="old"))

    class Overtaken(FaultyCalls):
        def put(self, version: IndexedVersion) -> None:
            if version.name == "old":
                changed = store.describe(version_id(1), name="new").after
                assert isinstance(changed, VersionRecord)
                index.put(IndexedVersion.of(version_id(1), changed))
            index.put(version)

    found = index_refresh.refresh(Overtaken(index), origin, version_id(1))
    assert found is not None
    assert found.name == "new"
    assert contents(index) == [found]


def test_rebuild_that_is_interrupted_is_repeated(index: VersionIndex, store: VersionStore) -> None:
    origin = store.repository.origin
    for number in range(1, 5):
        store.publish(version_id(number), committed())
    fault = CallFault("put", lambda: exception.UnavailableError("away"), call=3)
    with pytest.raises(exception.UnavailableError):
        index_refresh.rebuild(FaultyCalls(index, fault), origin)
    assert len(contents(index)) == 2
    assert index_refresh.rebuild(index, origin).written == 2
