"""Preview of a schedule: its next runs, and which versions go after which, each with reasons."""

import datetime
from collections.abc import Iterator
from typing import Any

from acstor.api import times
from acstor.api.backends import Backends
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import schedules
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import schedules as schemas
from acstor.repository.versions.record import DiskName, Trigger
from acstor.versions import candidates, preview
from acstor.versions.database.schedule_store import StoredSchedule, Target, TargetKind
from acstor.versions.database.tasks import PAGE_MAX, Position
from acstor.versions.database.version_index import (
    Filter,
    IndexedVersion,
    Operator,
    SortKey,
    VersionField,
    VersionQuery,
    position_of,
)
from acstor.versions.retention import Candidate

TARGETS_MAX = 20
"""Most targets of which one preview tells."""
VERSIONS_MAX = 10_000
"""Most versions of one target that are looked at, the newest."""
_FIELD = {TargetKind.SERVER: VersionField.SERVER, TargetKind.VOLUME: VersionField.VOLUME}


class SchedulePreview(BackedResource):
    """Preview: ``/v1/schedules/<id>/preview``."""

    @operation("schedules:preview", "Show what a schedule does next", {200: schemas.PREVIEW})
    def on_get(self, call: Call) -> Answer:
        """Answer what happens if nobody changes anything."""
        backends, now = self._backends, self._backends.now()
        stored = schedules.find(backends, call, call.path["schedule_id"])
        targets = backends.stores.schedules.targets(stored.id, None, TARGETS_MAX)
        runs: dict[tuple[str, str], dict[str, Any]] = {}
        versions: list[dict[str, Any]] = []
        for target in targets:
            for shown in _previews(backends, stored, target, now):
                for run in shown.runs if stored.is_enabled else ():
                    starts_at = times.text(run.starts_at)
                    runs[starts_at, target.id] = {"target_id": target.id, "starts_at": starts_at}
                versions += [_fate(each, target, stored) for each in shown.fates]
        ordered = [runs[key] for key in sorted(runs)]
        return Answer({"preview": {"runs": ordered, "versions": versions}})


def _previews(
    backends: Backends, stored: StoredSchedule, target: Target, now: datetime.datetime
) -> Iterator[preview.Preview]:
    """Yield the preview of each disk of a target; of one that has no version yet of none."""
    found = _candidates(backends, stored, target, now) or {None: []}
    for disk in sorted(found, key=str):
        yield preview.preview(stored.schedule, target.id, stored.keep, found[disk], now)


def _candidates(
    backends: Backends, stored: StoredSchedule, target: Target, now: datetime.datetime
) -> dict[DiskName | None, list[Candidate]]:
    """Return the versions of each disk of a target as retention is asked about them."""
    grouped: dict[DiskName | None, list[Candidate]] = {}
    for version in _versions(backends, stored.project, target):
        if version.is_restorable:
            exemption = _exemption(version, stored.id, now)
            candidate = Candidate(version.id, version.created_at, exemption)
            grouped.setdefault(version.disk, []).append(candidate)
    return grouped


def _versions(backends: Backends, project: str, target: Target) -> Iterator[IndexedVersion]:
    after: Position | None = None
    seen = 0
    condition = Filter(_FIELD[target.kind], Operator.EQ, (target.id,))
    while seen < VERSIONS_MAX:
        page = backends.stores.versions.page(
            VersionQuery(project=project, filters=(condition,), after=after)
        )
        yield from page
        if len(page) < PAGE_MAX:
            return
        seen += len(page)
        after = position_of(page[-1], SortKey.CREATED_AT)


def _exemption(version: IndexedVersion, schedule_id: str, now: datetime.datetime) -> str:
    """Return the reason for which a version is exempt from a schedule's policy; empty: it is not.

    A schedule's policy is about the versions that it has taken, as the worker applies it.
    """
    if version.lock is not None and version.lock.holds(now):
        return candidates.LOCKED
    if version.is_used:
        return candidates.IN_USE
    is_counted = version.trigger is Trigger.SCHEDULE and version.schedule == schedule_id
    return "" if is_counted else candidates.NOT_COUNTED


def _fate(fate: preview.Fate, target: Target, stored: StoredSchedule) -> dict[str, Any]:
    verdict, run = fate.verdict, fate.removed_after
    gone = run.starts_at if run is not None and stored.is_enabled else None
    return {
        "id": verdict.id,
        "target_id": target.id,
        "created_at": times.text(verdict.created_at),
        "kept": verdict.is_kept,
        "reasons": list(verdict.reasons),
        "removed_after": times.optional_text(gone),
    }
