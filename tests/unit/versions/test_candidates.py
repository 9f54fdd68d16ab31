"""Versions as retention is asked about them."""

import zoneinfo

from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import DiskKind, DiskName, Trigger, VersionRecord
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.version_refs import Version
from acstor.versions import retention
from acstor.versions.candidates import candidates_of
from acstor.versions.retention import Candidate, Policy
from tests.unit.repository.versions.records import (
    DISK,
    HOUR,
    NOON,
    VOLUME,
    captured,
    committed,
    version_id,
)

SCHEDULED = {"trigger": Trigger.SCHEDULE}


def versions(*records: VersionRecord) -> list[Version]:
    return [Version(version_id(number), record) for number, record in enumerate(records)]


def test_locked_used_and_manual_versions_are_not_counted() -> None:
    found = versions(
        committed(**SCHEDULED),
        committed(**SCHEDULED, lock=Lock("kept", NOON + HOUR)),
        committed(**SCHEDULED, lock=Lock("over", NOON)),
        committed(**SCHEDULED, uses=("image/1",)),
        committed(),
    )
    reasons = [one.exemption for one in candidates_of(found, NOON)[DISK]]
    assert reasons == ["", "locked", "", "in use", "taken for another reason"]
    every = frozenset(Trigger)
    assert candidates_of(found[4:], NOON, every)[DISK] == [Candidate(version_id(4), NOON)]


def test_only_restore_points_are_asked_about() -> None:
    found = versions(
        captured(**SCHEDULED),
        committed(**SCHEDULED, state=VersionState.CONDEMNED, uses=("image/1",)),
        committed(**SCHEDULED, state=VersionState.MERGED),
    )
    assert [one.id for one in candidates_of(found, NOON)[DISK]] == [version_id(2)]


def test_each_disk_has_its_own_list() -> None:
    volume = DiskName(DiskKind.VOLUME, VOLUME)
    found = versions(committed(**SCHEDULED), committed(**SCHEDULED, disk=volume))
    assert {disk: len(each) for disk, each in candidates_of(found, NOON).items()} == {
        DISK: 1,
        volume: 1,
    }


def test_a_capture_that_may_be_lost_removes_no_version() -> None:
    """A policy that counted it would remove the one that is safe."""
    older = committed(**SCHEDULED, created_at=NOON - HOUR)
    found = versions(older, captured(**SCHEDULED))
    utc = zoneinfo.ZoneInfo("UTC")
    verdicts = retention.apply(Policy(last=1), candidates_of(found, NOON)[DISK], utc, NOON + HOUR)
    assert [(one.id, one.is_kept) for one in verdicts] == [(version_id(0), True)]
