"""The records of volumes and snapshots: golden files, versions, malformed content."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.repository.volumes import record
from acstor.repository.volumes.consistency import ConsistencyLevel
from acstor.repository.volumes.durability import Durability, DurabilityClass, Region
from acstor.repository.volumes.log_range import SEQUENCE_MAX, LogRange, appended
from acstor.repository.volumes.record import DiskState, Pending, SnapshotRecord, VolumeRecord

GOLDEN = pathlib.Path(__file__).parents[3] / "golden"
VOLUME = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
SOURCE = "b3ad2a2c-4d27-4a5e-9a52-6f1c8a5291f0"
NONCE = "5a" * 16

VOLUME_RECORD = VolumeRecord(
    size_bytes=20 << 30,
    manifest="ab" * 32,
    logs=(LogRange(SOURCE, 2, 0x2A0000, 0x2A0007), LogRange(VOLUME, 3, 0x30000, 0x30002)),
    epoch=5,
    next=0x30004,
    owner="compute-7",
    unsealed=4,
    seals=((3, 0x30003),),
    pending=Pending(DiskState("cd" * 32), ("ef" * 32,)),
    hosts=("compute-7", "compute-8"),
    is_standby_allowed=True,
    durability=Durability(
        regions=(
            Region(DurabilityClass.NONE, partition="swap"),
            Region(DurabilityClass.WRITE_BACK, first=1 << 30, last=2 << 30, period_s=3600.0),
        )
    ),
    name="home of alice",
    created_at="2026-11-21T11:47:21+00:00",
    metadata={"cinder_type": "desktop"},
    nonce=NONCE,
    unknown={"colour": ["blue"]},
)
SNAPSHOT_RECORD = SnapshotRecord(
    volume=VOLUME,
    size_bytes=20 << 30,
    manifest=None,
    logs=(LogRange(VOLUME, 3, 0x30000, 0x30002),),
    created_at="2026-11-21T11:47:21+00:00",
    group="9a52b3ad-2a2c-4a5e-8a52-91f06f1c0a5e",
    name="before the upgrade",
    metadata={},
    nonce=NONCE,
)


def test_volume_record_version_1_requires_update() -> None:
    golden = (GOLDEN / "volume-record-v1.json").read_bytes()
    assert record.VOLUME_VERSION == 1
    assert VolumeRecord.parse(golden, VOLUME) == VOLUME_RECORD
    assert VOLUME_RECORD.encode() == golden, "bump VOLUME_VERSION"


def test_level_is_in_records_of_another_than_the_usual_one_only() -> None:
    golden = json.loads((GOLDEN / "volume-record-v1.json").read_bytes())
    assert "level" not in golden
    for level in (ConsistencyLevel.WEAK, ConsistencyLevel.STRONG):
        made = dataclasses.replace(VOLUME_RECORD, level=level)
        assert json.loads(made.encode()) == {**golden, "level": level.value}
        assert VolumeRecord.parse(made.encode(), VOLUME) == made
    for bad in ("eventual", 7, None, ""):
        content = json.dumps({**golden, "level": bad}).encode()
        with pytest.raises(exception.CorruptError, match="no level of consistency"):
            VolumeRecord.parse(content, VOLUME)


def test_scope_is_in_records_that_have_one_only() -> None:
    golden = json.loads((GOLDEN / "volume-record-v1.json").read_bytes())
    assert "dedup_scope" not in golden
    assert "made_of" not in golden
    made = dataclasses.replace(VOLUME_RECORD, made_of="ab" * 32)
    assert json.loads(made.encode()) == {**golden, "made_of": "ab" * 32}
    assert VolumeRecord.parse(made.encode(), VOLUME) == made
    with pytest.raises(exception.CorruptError):
        VolumeRecord.parse(json.dumps({**golden, "made_of": "ab"}).encode(), VOLUME)
    scoped = dataclasses.replace(VOLUME_RECORD, dedup_scope="a project")
    assert json.loads(scoped.encode()) == {**golden, "dedup_scope": "a project"}
    assert VolumeRecord.parse(scoped.encode(), VOLUME) == scoped
    for bad in ("", 7, "x" * 256):
        with pytest.raises(exception.CorruptError, match="scope"):
            VolumeRecord.parse(json.dumps({**golden, "dedup_scope": bad}).encode(), VOLUME)


def test_snapshot_record_version_1_requires_update() -> None:
    golden = (GOLDEN / "snapshot-record-v1.json").read_bytes()
    assert record.SNAPSHOT_VERSION == 1
    assert SnapshotRecord.parse(golden, VOLUME) == SNAPSHOT_RECORD
    assert SNAPSHOT_RECORD.encode() == golden, "bump SNAPSHOT_VERSION"


def test_fields_of_a_newer_release_are_kept_in_volumes_only() -> None:
    fields = {**json.loads(SNAPSHOT_RECORD.encode()), "colour": "blue"}
    assert SnapshotRecord.parse(json.dumps(fields).encode(), VOLUME) == SNAPSHOT_RECORD
    moved = dataclasses.replace(VOLUME_RECORD, owner=None, unsealed=None)
    assert json.loads(moved.encode())["colour"] == ["blue"]


RANGE = {"volume": VOLUME, "epoch": 1, "first": 0, "last": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"size_bytes": 0}, {"size_bytes": 513}, {"size_bytes": -512}, {"size_bytes": "512"},
        {"size_bytes": True}, {"size_bytes": 1 << 70}, {"manifest": "ab"}, {"manifest": 7},
        {"logs": None}, {"logs": {}}, {"logs": [7]}, {"logs": [{}]},
        {"logs": [{**RANGE, "volume": "../x"}]}, {"logs": [{**RANGE, "volume": None}]},
        {"logs": [{**RANGE, "volume": VOLUME.upper()}]}, {"logs": [{**RANGE, "epoch": 1 << 32}]},
        {"logs": [{**RANGE, "first": 1}]}, {"logs": [{**RANGE, "first": -1}]},
        {"logs": [{**RANGE, "last": 1 << 63}]}, {"logs": [{**RANGE, "last": 1.0}]},
        {"logs": [RANGE] * 4097}, {"epoch": -1}, {"epoch": None}, {"next": 1 << 63},
        {"next": "0"}, {"owner": ""}, {"owner": 7}, {"owner": "a\nb"}, {"unsealed": "1"},
        {"unsealed": 1 << 32}, {"seals": None}, {"seals": [[1]]}, {"seals": [[1, -1]]},
        {"seals": [["1", 2]]}, {"seals": [[1, 2]] * 1025}, {"pending": []},
        {"pending": {}}, {"pending": {"manifest": None, "logs": [], "packs": ["x"]}},
        {"pending": {"manifest": None, "logs": [], "packs": [None]}},
        {"pending": {"manifest": "x", "logs": [], "packs": []}}, {"hosts": None},
        {"hosts": ["b", "a"]}, {"hosts": ["a", "a"]}, {"hosts": [7]}, {"hosts": ["h"] * 257},
        {"is_standby_allowed": 1}, {"durability": None}, {"durability": {"default": "x"}},
        {"content_end": [1]}, {"content_end": 7}, {"content_end": [1, None]}, {"name": None},
        {"name": "x" * 256}, {"created_at": 7}, {"metadata": None}, {"metadata": {"a": 1}},
        {"metadata": {"": "a"}}, {"metadata": {"a": "x" * 1025}},
        {"metadata": {str(n): "" for n in range(65)}}, {"nonce": None}, {"nonce": "5A" * 16},
    ],
)  # fmt: skip
def test_malformed_volume_record_is_corrupt(change: dict[str, Any]) -> None:
    fields = {**json.loads(VOLUME_RECORD.encode()), **change}
    with pytest.raises(exception.CorruptError, match=VOLUME):
        VolumeRecord.parse(json.dumps(fields).encode(), VOLUME)


@pytest.mark.parametrize(
    "change",
    [
        {"volume": None}, {"volume": "x"}, {"size_bytes": 1}, {"manifest": ""}, {"logs": 7},
        {"created_at": None}, {"group": 7}, {"group": "x" * 256}, {"name": 7}, {"metadata": []},
        {"nonce": ""},
    ],
)  # fmt: skip
def test_malformed_snapshot_record_is_corrupt(change: dict[str, Any]) -> None:
    fields = {**json.loads(SNAPSHOT_RECORD.encode()), **change}
    with pytest.raises(exception.CorruptError, match=VOLUME):
        SnapshotRecord.parse(json.dumps(fields).encode(), VOLUME)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"{}", b"\xff", b"7", b"null", b"[" * 100_000, b" " * ((1 << 20) + 1)],
)
def test_what_is_no_record_is_corrupt(content: bytes) -> None:
    for kind in (VolumeRecord, SnapshotRecord):
        with pytest.raises(exception.CorruptError, match=VOLUME):
            kind.parse(content, VOLUME)


def test_snapshot_of_version_2_is_unsupported() -> None:
    fields = {**json.loads(SNAPSHOT_RECORD.encode()), "version": 2}
    with pytest.raises(exception.UnsupportedError, match="this release reads 1"):
        SnapshotRecord.parse(json.dumps(fields).encode(), VOLUME)


@pytest.mark.parametrize("version", [0, 3, None, "1", True, [1]])
def test_record_of_another_version_is_unsupported(version: object) -> None:
    for one in (VOLUME_RECORD, SNAPSHOT_RECORD):
        fields = {**json.loads(one.encode()), "version": version}
        with pytest.raises(exception.UnsupportedError, match="this release reads 1"):
            type(one).parse(json.dumps(fields).encode(), VOLUME)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(sorted(json.loads(VOLUME_RECORD.encode()))) | st.text(), inner
    ),
))  # fmt: skip
def test_any_json_in_a_record_is_an_error_or_a_record(value: object) -> None:
    known = json.loads(VOLUME_RECORD.encode())
    changes = value if isinstance(value, dict) else {}
    try:
        found = VolumeRecord.parse(json.dumps({**known, **changes}).encode(), VOLUME)
    except (exception.CorruptError, exception.UnsupportedError):
        return
    assert VolumeRecord.parse(found.encode(), VOLUME) == found


def test_record_that_is_too_long_is_not_written() -> None:
    logs = tuple(LogRange(VOLUME, 1, 2 * n, 2 * n) for n in range(4096))
    long = dataclasses.replace(VOLUME_RECORD, logs=logs, unknown={"colour": "x" * (1 << 20)})
    with pytest.raises(exception.ExhaustedError, match="at most 1048576"):
        long.encode()


def test_coverage_names_everything_that_the_owner_may_be_writing() -> None:
    covered = VOLUME_RECORD.coverage(VOLUME)
    assert LogRange(SOURCE, 2, 0x2A0000, 0x2A0007) in covered
    assert LogRange(VOLUME, 5, 0x30004, SEQUENCE_MAX) in covered
    assert LogRange(VOLUME, 4, 0x30004, SEQUENCE_MAX) in covered, "not sealed yet"
    assert LogRange(VOLUME, 3, 0x30003, 0x30003) in covered, "the seal"


def test_closed_ranges_grow_and_join() -> None:
    fresh = VolumeRecord(512, epoch=3, next=5)
    assert fresh.closed_until(VOLUME, 4) == ()
    assert fresh.closed_until(VOLUME, 5) == (LogRange(VOLUME, 3, 5, 5),)
    first = (LogRange(VOLUME, 3, 1, 4),)
    assert appended(first, LogRange(VOLUME, 3, 5, 9)) == (LogRange(VOLUME, 3, 1, 9),)
    for other in (LogRange(VOLUME, 3, 6, 9), LogRange(VOLUME, 4, 5, 9), LogRange(SOURCE, 3, 5, 9)):
        assert appended(first, other) == (*first, other)
    assert appended(first, None) == first
