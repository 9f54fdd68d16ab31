"""Preview of a schedule: its next runs, and what a policy keeps then, each version with reasons."""

import dataclasses
import datetime
from collections.abc import Sequence

from acstor.versions import retention, schedules
from acstor.versions.retention import Candidate, Policy, Verdict
from acstor.versions.schedules import Run, Schedule

RUNS_MAX = 31
"""Most runs ahead for which the policy is asked: each asks it about every version."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fate:
    """Present and future of a version that exists."""

    verdict: Verdict
    """Answer of the policy now."""
    removed_after: Run | None
    """First run ahead after which it is removed; None where it is now, or outlives all of them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Preview:
    """Preview of one target of a schedule."""

    runs: tuple[Run, ...]
    """Next runs, the first one first."""
    fates: tuple[Fate, ...]
    """Fate of each version, the newest first."""


def preview(
    schedule: Schedule,
    target_id: str,
    policy: Policy,
    candidates: Sequence[Candidate],
    now: datetime.datetime,
    runs: int = 7,
) -> Preview:
    """Return what a schedule does next with one target, if nobody changes anything.

    :param candidates: versions of the target's disk that the policy is asked about.
    :param runs: number of runs ahead, at most :data:`RUNS_MAX`.
    """
    ahead = schedules.next_runs(schedule, target_id, now, min(runs, RUNS_MAX))
    verdicts = retention.apply(policy, candidates, schedule.zone, now)
    removals = _removals(schedule, policy, candidates, verdicts, ahead)
    fates = (Fate(verdict, removals.get(verdict.id)) for verdict in verdicts)
    return Preview(tuple(ahead), tuple(fates))


def _removals(
    schedule: Schedule,
    policy: Policy,
    candidates: Sequence[Candidate],
    verdicts: Sequence[Verdict],
    ahead: Sequence[Run],
) -> dict[str, Run]:
    """Return the run after which each version goes, of those that stay for now."""
    kept = {verdict.id for verdict in verdicts if verdict.is_kept}
    left = [candidate for candidate in candidates if candidate.id in kept]
    removals: dict[str, Run] = {}
    for run in ahead:
        left.append(Candidate(f"{run.slot.key} of {run.schedule_id}", run.starts_at))
        after = run.starts_at + datetime.timedelta(seconds=1)
        gone = {
            verdict.id
            for verdict in retention.apply(policy, left, schedule.zone, after)
            if not verdict.is_kept
        }
        removals.update(dict.fromkeys(gone, run))
        left = [candidate for candidate in left if candidate.id not in gone]
    return removals
