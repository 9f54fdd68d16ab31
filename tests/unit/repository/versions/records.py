"""Records of versions, for tests."""

import datetime
import uuid
from typing import Any

from acstor.repository.versions.record import DiskKind, DiskName, VersionRecord
from acstor.repository.versions.states import VersionState

NOON = datetime.datetime(2026, 11, 26, 12, tzinfo=datetime.UTC)
"""Time of these tests."""
HOUR = datetime.timedelta(hours=1)
SERVER, VOLUME = (str(uuid.UUID(int=number)) for number in (70, 71))
DISK = DiskName(DiskKind.INSTANCE, SERVER, "vda")


def version_id(number: int) -> str:
    """Return an id; those of small numbers are all in one folder, those of 16 in the next."""
    return str(uuid.UUID(int=number << 124 | number))


def captured(**fields: Any) -> VersionRecord:
    """Return the record of a capture of host h1."""
    known = {
        "state": VersionState.CAPTURED,
        "disk": DISK,
        "size_bytes": 1 << 20,
        "project": "a project",
        "created_at": NOON,
        "host": "h1",
    }
    return VersionRecord(**{**known, **fields})


def committed(**fields: Any) -> VersionRecord:
    """Return the record of a version."""
    known = {"state": VersionState.COMMITTED, "host": None, "committed_at": NOON}
    return captured(**{**known, **fields})
