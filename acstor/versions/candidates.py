"""Versions as retention is asked about them: by disk, with those that it does not count."""

import datetime
from collections.abc import Iterable

from acstor.repository.versions import locks
from acstor.repository.versions.record import DiskName, Trigger, VersionRecord
from acstor.repository.versions.version_refs import Version
from acstor.versions.retention import Candidate

LOCKED = "locked"
"""Reason of a version that is locked."""
IN_USE = "in use"
"""Reason of a version that something uses."""
NOT_COUNTED = "taken for another reason"
"""Reason of a version that no schedule asked for."""
COUNTED_DEFAULT = frozenset({Trigger.SCHEDULE})
"""Triggers of versions that policies count."""


def exemption_of(
    record: VersionRecord,
    now: datetime.datetime,
    counted: frozenset[Trigger] = COUNTED_DEFAULT,
) -> str:
    """Return the reason for which a version is exempt from policies; empty: it is not."""
    if locks.is_locked(record.lock, now):
        return LOCKED
    if record.uses:
        return IN_USE
    return "" if record.trigger in counted else NOT_COUNTED


def candidates_of(
    versions: Iterable[Version],
    now: datetime.datetime,
    counted: frozenset[Trigger] = COUNTED_DEFAULT,
) -> dict[DiskName, list[Candidate]]:
    """Return the restore points of each disk, as a policy is asked about them.

    What is captured only is none, and neither counts nor goes: a policy that counted it would
    remove a version that is safe for one that may be lost.

    :param counted: triggers of versions that the policy counts; others are exempt.
    """
    found: dict[DiskName, list[Candidate]] = {}
    for version in versions:
        record = version.record
        if record.is_restorable:
            exemption = exemption_of(record, now, counted)
            candidate = Candidate(version.id, record.created_at, exemption)
            found.setdefault(record.disk, []).append(candidate)
    return found
