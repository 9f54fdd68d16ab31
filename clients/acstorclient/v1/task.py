"""Tasks: long work that somebody waits for, or does not."""

import enum
from collections.abc import Mapping
from typing import Any

from openstack import resource

from acstorclient.exception import Explanation
from acstorclient.v1.base import Resource, listing


class TaskState(enum.StrEnum):
    """States of a task; each path leads to done, failed or cancelled.

    ::

        queued --> running -----> done
          |          |  '-----------------> failed
          |          '--> reverting --------^
          |                   '-----------> cancelled
          '---------------------------------^
    """

    QUEUED = "queued"
    RUNNING = "running"
    REVERTING = "reverting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDS = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED})
"""States that a task stays in."""


class Task(Resource):
    """A piece of long work; it is kept for 30 days after its end."""

    resource_key = "task"
    resources_key = "tasks"
    base_path = "/tasks"
    allow_fetch = True
    allow_list = True
    allow_delete = True
    _query_mapping = listing("kind", "state", "server_id", "volume_id", "version_id")

    kind: str = resource.Body("kind")
    """``capture``, ``restore``, ``export`` ..."""
    state: str = resource.Body("state")
    step: str | None = resource.Body("step")
    progress: float | None = resource.Body("progress")
    """Part that is done, 0 to 1."""
    bytes_done: int | None = resource.Body("bytes_done")
    bytes_total: int | None = resource.Body("bytes_total")
    result: dict[str, Any] | None = resource.Body("result")
    """Ids of what came of it."""
    error: dict[str, Any] | None = resource.Body("error")
    group_id: str | None = resource.Body("group_id")
    """Group of the versions that a capture makes."""
    created_at: str | None = resource.Body("created_at")
    finished_at: str | None = resource.Body("finished_at")
    project_id: str | None = resource.Body("project_id")

    @property
    def is_ended(self) -> bool:
        """Return whether its state is final."""
        return self.state in ENDS

    @property
    def outcome(self) -> Mapping[str, Any]:
        """Return the ids of what came of it; empty before that."""
        known = {"group_id": self.group_id} if self.group_id else {}
        return {**known, **(self.result or {})}

    @property
    def explanation(self) -> Explanation:
        """Return the error that it ended with."""
        return Explanation.from_body(self.error or {})
