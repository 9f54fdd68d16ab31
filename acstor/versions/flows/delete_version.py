"""Deleting a version: one that is in use is hidden, and goes with its last use."""

from typing import Any

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.states import VersionState
from acstor.versions.flows.step import Step
from acstor.versions.flows.work import Work


class Delete(Step):
    """Delete the record, or condemn it. Nobody can take that back."""

    step = "delete"
    share = 0.2

    def act(self, work: Work) -> dict[str, Any]:
        """Return what became of it."""
        version_id = str(work.parameters["version_id"])
        origin = work.versions.repository.origin
        version = version_refs.find_version(origin, version_id)
        if version is None or version.record.state is VersionState.CONDEMNED:
            # By this step, where a worker died after it.
            return {"version_id": version_id, "is_condemned": version is not None}
        if version.record.project != work.task.project:
            raise exception.NotFoundError(f"version {version_id} does not exist")
        work.fence()
        if version.record.state is VersionState.CAPTURED:
            work.versions.abandon(version_id)
            return {"version_id": version_id, "is_condemned": False}
        before = work.versions.delete(version_id)
        return {"version_id": version_id, "is_condemned": bool(before.record.uses)}


class Finish(Step):
    """Have the lists show it no more."""

    step = "finish"
    share = 0.9

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        found: dict[str, Any] = work.result_of(Delete.step)
        work.refresh(found["version_id"])
        return found


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Delete(), Finish()]
