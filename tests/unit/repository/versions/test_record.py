"""Records of versions: the golden file, what is refused, fields of newer releases."""

import datetime
import json
import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions import record as records
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
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import DiskState, Pending
from tests.unit.repository.versions.records import HOUR, NOON, SERVER, VOLUME, captured, committed

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden" / "version-record-v1.json"
PARENT, IMAGE, GROUP = (f"6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f{digit}" for digit in "abc")

FULL = committed(
    state=VersionState.MERGED,
    name="before the upgrade",
    trigger=Trigger.SCHEDULE,
    consistency=Consistency.FS,
    parent=PARENT,
    base_image=IMAGE,
    manifest="ab" * 32,
    packs=("cd" * 32, "ef" * 32),
    nvram="12" * 32,
    vtpm="34" * 32,
    pending=Pending(DiskState("56" * 32), ("78" * 32,)),
    committed_at=NOON + datetime.timedelta(seconds=70),
    group=GROUP,
    group_size=2,
    schedule="nightly",
    slot="2026-11-26",
    expires_at=NOON + 24 * HOUR,
    lock=Lock("ransomware", NOON + 12 * HOUR),
    labels={"ticket": "4711"},
    delta=DeltaCounts(1600, 1500, 2, 40_000_000, 3_000_000),
    alpha=0.5,
    uses=(f"image/{IMAGE}", f"restore/{GROUP}"),
    dedup_scope="a project",
    nonce="0123456789abcdef0123456789abcdef",
)


def test_version_record_version_requires_update() -> None:
    content = GOLDEN.read_bytes()
    found = VersionRecord.parse(content, "a version")
    assert records.RECORD_VERSION == 1
    assert found == FULL
    assert found.encode() == content, "bump RECORD_VERSION"


def test_fields_of_newer_releases_are_kept() -> None:
    fields = {**json.loads(GOLDEN.read_bytes()), "from_the_future": [1]}
    found = VersionRecord.parse(json.dumps(fields).encode(), "a version")
    assert found.unknown == {"from_the_future": [1]}
    assert json.loads(found.encode())["from_the_future"] == [1]


def test_other_versions_are_refused() -> None:
    fields = {**json.loads(GOLDEN.read_bytes()), "version": 2}
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        VersionRecord.parse(json.dumps(fields).encode(), "a version")


@pytest.mark.parametrize("record", [captured(), committed(), committed(manifest="ab" * 32)])
def test_small_records_are_read_as_they_were_written(record: VersionRecord) -> None:
    assert VersionRecord.parse(record.encode(), "a version") == record


def test_version_of_a_volume_has_log_objects() -> None:
    logs = (LogRange(VOLUME, 1, 2, 3),)
    record = committed(disk=DiskName(DiskKind.VOLUME, VOLUME), logs=logs)
    found = VersionRecord.parse(record.encode(), "a version")
    assert found.content == DiskState(None, logs)


MALFORMED: dict[str, Any] = {
    "state": "lost",
    "disk": {"kind": "instance", "owner": SERVER, "device": ""},
    "size_bytes": 511,
    "project": None,
    "created_at": "2026-11-26T12:00:00",
    "expires_at": "tomorrow",
    "trigger": "whim",
    "consistency": None,
    "parent": PARENT.upper(),
    "group": "a group",
    "group_size": 0,
    "manifest": "ab",
    "nvram": 5,
    "packs": [None],
    "host": "h1",
    "pending": {"manifest": None, "logs": [], "packs": None},
    "lock": {"reason": None, "until": None},
    "labels": {"": "x"},
    "delta": {"changed_chunks": -1},
    "alpha": 1.5,
    "uses": ["b/1", "a/1"],
    "dedup_scope": "",
    "nonce": "x",
    "committed_at": None,
    "logs": [{}],
}


@pytest.mark.parametrize("name", sorted(MALFORMED))
def test_malformed_fields_are_refused(name: str) -> None:
    fields = {**json.loads(GOLDEN.read_bytes()), name: MALFORMED[name]}
    with pytest.raises(exception.CorruptError, match="a version is malformed"):
        VersionRecord.parse(json.dumps(fields).encode(), "a version")


@pytest.mark.parametrize("uses", [["nothing"], ["A/1"], ["a/"], ["a/b c"], ["a/1", "a/1"], [1]])
def test_malformed_uses_are_refused(uses: list[Any]) -> None:
    fields = {**json.loads(GOLDEN.read_bytes()), "uses": uses}
    with pytest.raises(exception.CorruptError):
        VersionRecord.parse(json.dumps(fields).encode(), "a version")


@pytest.mark.parametrize(
    "fields",
    [
        {"manifest": "ab" * 32},
        {"packs": ("ab" * 32,)},
        {"logs": (LogRange(VOLUME, 1, 2, 3),)},
        {"committed_at": NOON},
        {"host": None},
        {"created_at": NOON.replace(microsecond=1)},
        {"created_at": NOON.replace(tzinfo=datetime.timezone(HOUR))},
        {"lock": Lock("", NOON.replace(microsecond=1))},
    ],
)
def test_a_capture_names_no_content(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"host|names content|seconds"):
        captured(**fields).check()


def test_a_condemned_version_is_in_use() -> None:
    with pytest.raises(ValueError, match="nothing uses it"):
        committed(state=VersionState.CONDEMNED).check()


def test_only_what_is_in_the_origin_is_a_restore_point() -> None:
    states = {state: committed(state=state).is_restorable for state in VersionState}
    assert [state for state, is_one in states.items() if is_one] == [
        VersionState.COMMITTED,
        VersionState.MERGED,
    ]
