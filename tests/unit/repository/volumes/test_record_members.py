"""The members that a volume's record names: fields, versions, and the epochs that they are of."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository import record_json
from acstor.repository.copying.settled_volumes import settled
from acstor.repository.repository import Repository
from acstor.repository.volumes import record as records
from acstor.repository.volumes.log_range import LogRange, appended
from acstor.repository.volumes.record import SnapshotRecord, VolumeRecord
from acstor.repository.volumes.store import NewVolume, VolumeStore

GOLDEN = pathlib.Path(__file__).parents[3] / "golden"
VOLUME = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
NONCE = "5a" * 16

MOVED = VolumeRecord(
    size_bytes=1 << 30,
    logs=(
        LogRange(VOLUME, 1, 0x30000, 0x30002),
        LogRange(VOLUME, 2, 0x30004, 0x30005, member="nvme"),
    ),
    epoch=4,
    next=0x30007,
    owner="compute-7",
    unsealed=3,
    member="archive",
    unsealed_member="nvme",
    assigned="nvme",
    seals=((1, 0x30003), (2, 0x30006)),
    hosts=("compute-7",),
    nonce=NONCE,
)


def test_volume_record_version_2_requires_update() -> None:
    golden = (GOLDEN / "volume-record-v2.json").read_bytes()
    assert records.ASSIGNED_VERSION == 2
    parsed = VolumeRecord.parse(golden, VOLUME)
    assert parsed == MOVED
    assert [one.member for one in parsed.logs] == [None, "nvme"]
    assert parsed.encode() == golden, "bump ASSIGNED_VERSION"


def test_record_that_names_no_member_is_as_it_ever_was() -> None:
    golden = json.loads((GOLDEN / "volume-record-v1.json").read_bytes())
    assert golden["version"] == 1
    assert not {"member", "unsealed_member", "assigned"} & golden.keys()
    assert all("member" not in one for one in golden["logs"])


@pytest.mark.parametrize("name", ["member", "unsealed_member", "assigned"])
def test_record_that_names_one_is_refused_by_programs_that_know_none(name: str) -> None:
    """Such a program reads version 1 only; it would write the epoch's log in the home."""
    plain = dataclasses.replace(MOVED, member=None, unsealed_member=None, assigned=None)
    content = dataclasses.replace(plain, **{name: "nvme"}).encode()  # type: ignore[arg-type]
    assert json.loads(plain.encode())["version"] == 1
    with pytest.raises(exception.UnsupportedError):
        record_json.load_fields(content, "the record", records.VOLUME_VERSION)


@pytest.mark.parametrize(
    "change",
    [
        {"member": ""}, {"member": "Upper"}, {"member": 7}, {"member": "a/b"},
        {"assigned": "x" * 32}, {"assigned": ["nvme"]}, {"unsealed_member": True},
        {"unsealed": None}, {"version": 1}, {"version": 3},
        {"logs": [{"volume": VOLUME, "epoch": 1, "first": 1, "last": 1, "member": ".."}]},
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused(change: dict[str, Any]) -> None:
    fields = {**json.loads(MOVED.encode()), **change}
    with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
        VolumeRecord.parse(json.dumps(fields).encode(), VOLUME)


def test_epoch_begins_in_the_member_that_was_assigned() -> None:
    """Each owner seals the epoch that was written, where it was written."""
    first = dataclasses.replace(
        MOVED, epoch=1, member=None, unsealed=None, unsealed_member=None, assigned="nvme"
    )
    moving = first.taken_by("compute-7")
    assert (moving.epoch, moving.member) == (2, "nvme")
    assert (moving.unsealed, moving.unsealed_member) == (1, None)
    # Its owner dies before it wrote anything, and the volume is to go elsewhere by now.
    again = dataclasses.replace(moving, assigned="archive").taken_by("compute-8")
    assert (again.epoch, again.member) == (3, "archive")
    assert (again.unsealed, again.unsealed_member) == (1, None)
    sealed = dataclasses.replace(again, unsealed=None, unsealed_member=None)
    back = dataclasses.replace(sealed, assigned=None).taken_by("compute-8")
    assert (back.epoch, back.member) == (4, None)
    assert (back.unsealed, back.unsealed_member) == (3, "archive")


def test_volume_that_nobody_owned_has_nothing_to_be_sealed_anywhere() -> None:
    fresh = VolumeRecord(size_bytes=512, assigned="nvme").taken_by("compute-7")
    assert (fresh.epoch, fresh.member) == (1, "nvme")
    assert (fresh.unsealed, fresh.unsealed_member) == (None, None)


def test_ranges_say_where_they_were_written() -> None:
    open_epoch = dataclasses.replace(MOVED, unsealed=None, unsealed_member=None)
    closed = open_epoch.closed_until(VOLUME, 0x30008)
    assert [one.member for one in closed] == [None, "nvme", "archive"]
    joined = appended(closed, LogRange(VOLUME, 4, 0x30009, 0x30009, member="archive"))
    assert [(one.last, one.member) for one in joined[2:]] == [(0x30009, "archive")]
    snapshot = SnapshotRecord(VOLUME, 512, None, closed, nonce=NONCE)
    parsed = SnapshotRecord.parse(snapshot.encode(), VOLUME)
    assert [one.member for one in parsed.logs] == [None, "nvme", "archive"]


def test_restored_record_names_no_member() -> None:
    """A copy of the repository has everything in one place."""
    content = settled(VOLUME, MOVED.encode(), lambda volume, epoch, first: (first, first + 1))
    restored = VolumeRecord.parse(content, VOLUME)
    assert not restored.names_members
    assert [one.member for one in restored.logs] == [None, None, None]
    assert json.loads(content)["version"] == 1


def test_assignment_is_all_that_a_mover_changes() -> None:
    store = VolumeStore(Repository.init(MemoryOrigin()))
    store.create(NewVolume(VOLUME, 1 << 20))
    store.allow_host(VOLUME, "compute-7")
    store.acquire(VOLUME, "compute-7")
    change = store.assign(VOLUME, "nvme")
    nonce = change.before.nonce
    assert change.after != change.before
    assert dataclasses.replace(change.after, assigned=None, nonce=nonce) == change.before
    assert store.assign(VOLUME, "nvme").after == change.after
    store.advance(VOLUME, "compute-7", 1, change.after.next)
    assert store.get(VOLUME).record.member is None
    with pytest.raises(exception.InvalidError):
        store.assign(VOLUME, "../x")
    assert store.assign(VOLUME, None).after.assigned is None


def test_renamed_volume_stays_assigned() -> None:
    store = VolumeStore(Repository.init(MemoryOrigin()))
    store.create(NewVolume(VOLUME, 1 << 20, assigned="nvme"))
    other = VOLUME.replace("6f1c", "6f1d")
    assert store.rename(VOLUME, other).record.assigned == "nvme"
