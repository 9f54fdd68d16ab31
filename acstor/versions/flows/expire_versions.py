"""Applying a retention policy to the versions of one server or volume, disk by disk."""

from typing import Any

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.version_refs import Version
from acstor.versions import candidates, local_times, retention
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.tasks import PAGE_MAX, Position, Progress
from acstor.versions.database.version_index import (
    Filter,
    Operator,
    SortKey,
    VersionField,
    VersionQuery,
    position_of,
)
from acstor.versions.flows.step import Step
from acstor.versions.flows.work import Work
from acstor.versions.retention import Policy


class Choose(Step):
    """Ask the policy about every version."""

    step = "choose"

    def act(self, work: Work) -> dict[str, Any]:
        """Return the ids of those that go."""
        wanted = work.parameters
        policy = Policy.from_fields(wanted["keep"])
        zone = local_times.open_zone(str(wanted.get("timezone", "UTC")))
        counted = frozenset(Trigger(one) for one in wanted["triggers"])
        now = work.now()
        gone: list[str] = []
        for found in candidates.candidates_of(_versions(work), now, counted).values():
            for verdict in retention.apply(policy, found, zone, now):
                if not verdict.is_kept:
                    gone.append(verdict.id)
        return {"versions": sorted(gone)}


class Finish(Step):
    """Delete those; one that was locked or deleted meanwhile is passed over."""

    step = "finish"
    share = 0.2

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        chosen = work.result_of(Choose.step)["versions"]
        kept = []
        for number, version_id in enumerate(chosen):
            work.fence()
            try:
                work.versions.delete(version_id)
            except exception.NotFoundError:
                pass  # deleted already
            except exception.ConflictError as error:
                work.note(exception.one_line(error))
                kept.append(version_id)
            work.refresh(version_id)
            work.report(Progress(share=self.share + 0.8 * number / len(chosen)))
        return {"deleted": sorted(set(chosen) - set(kept)), "kept": kept}


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Choose(), Finish()]


def _versions(work: Work) -> list[Version]:
    """Return the versions that the policy is about, as the origin has them now."""
    origin, schedule = work.versions.repository.origin, work.parameters.get("schedule")
    found = []
    for version_id in _ids(work):
        version = version_refs.find_version(origin, version_id)
        if version is not None and schedule in (None, version.record.schedule):
            found.append(version)
    return found


def _ids(work: Work) -> list[str]:
    is_volume = TargetKind(work.parameters["kind"]) is TargetKind.VOLUME
    field = VersionField.VOLUME if is_volume else VersionField.SERVER
    owner = (str(work.parameters["owner"]),)
    after: Position | None = None
    found: list[str] = []
    while True:
        query = VersionQuery(
            project=work.task.project,
            filters=(Filter(field, Operator.EQ, owner),),
            after=after,
        )
        with work.interrupting():
            page = work.stores.versions.page(query)
        found += [row.id for row in page]
        if len(page) < PAGE_MAX:
            return found
        after = position_of(page[-1], SortKey.CREATED_AT)
