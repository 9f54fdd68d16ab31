"""Tasks: long work, which outlives whoever asked for it and ends on every path."""

from acstor import exception
from acstor.api import paging, task_requests
from acstor.api.backends import Backends
from acstor.api.errors import ApiError, not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.paging import Page
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import tasks as schemas
from acstor.versions.database.engine import to_ms
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Position, Task, TaskKind, TaskQuery

RESOURCES = ("server", "volume", "version")
"""Kinds of things that tasks work on, of which a list may name one."""


def find(backends: Backends, call: Call, task_id: str) -> Task:
    """Return a task that the caller may see.

    :raises NotFoundError: when there is none, or it is another project's.
    """
    try:
        return backends.stores.tasks.get(task_id, call.scope)
    except exception.NotFoundError as error:
        hint = "tasks are kept for 30 days: openstack acstor task list"
        raise not_found("task", task_id, hint=hint) from error


def position_of(task: Task) -> Position:
    """Return the place of a task in a list."""
    return Position(to_ms(task.created_at), task.id)


def resource_of(call: Call) -> str | None:
    """Return the thing whose tasks a list has, None: of all things.

    :raises ApiError: when several are named.
    """
    named = [
        f"{kind}/{call.query[f'{kind}_id']}" for kind in RESOURCES if f"{kind}_id" in call.query
    ]
    if len(named) > 1:
        raise ApiError(
            f"a task works on one thing, not on {' and '.join(named)}",
            hint="name one",
            code="acstor.query.invalid",
        )
    return named[0] if named else None


class Tasks(BackedResource):
    """Tasks: ``/v1/tasks``."""

    @operation("tasks:list", "List tasks", {200: schemas.LISTED}, query=schemas.QUERY)
    def on_get(self, call: Call) -> Answer:
        """Answer a page."""
        page = Page.of(call, self._backends.limit_max, "created_at", is_descending=True)
        found = self._backends.stores.tasks.page(
            TaskQuery(
                project=paging.project_of(call),
                states=task_requests.words_of(call.query.get("state"), TaskState, "state"),
                kinds=task_requests.words_of(call.query.get("kind"), TaskKind, "kind"),
                resource=resource_of(call),
                is_descending=page.is_descending,
                limit=page.limit,
                after=page.position(lambda one: position_of(find(self._backends, call, one))),
            )
        )
        items = [task_requests.fields_of(each) for each in found]
        last = position_of(found[-1]) if found else None
        return Answer(paging.body(call, "tasks", items, page, last))


class OneTask(BackedResource):
    """One task: ``/v1/tasks/<id>``."""

    @operation("tasks:show", "Show a task", {200: schemas.SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the task."""
        found = find(self._backends, call, call.path["task_id"])
        return Answer({"task": task_requests.fields_of(found)})

    @operation("tasks:cancel", "Cancel a task", {202: schemas.SHOWN})
    def on_delete(self, call: Call) -> Answer:
        """Have it stop, and what it did undone; one that has ended stays as it is."""
        found = find(self._backends, call, call.path["task_id"])
        cancelled = self._backends.stores.tasks.cancel(found.id)
        return Answer({"task": task_requests.fields_of(cancelled)}, 202)
