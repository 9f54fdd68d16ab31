"""Requests that begin long work: each queues a task, and repeating it queues no second one.

A project's users have so many unfinished tasks and no more. One that is refused leaves no row: a
look comes before anything is written. Then the task is queued, counted and taken back, so that of
two that ask at the same time not both get the last place.
"""

import contextlib
import enum
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from acstor import exception
from acstor.api.backends import Backends
from acstor.api.errors import ApiError, BacklogError
from acstor.api.operations import Answer, Call
from acstor.api.times import optional_text, text
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import NewTask, Task, TaskKind

KEY_HEADER = "Idempotency-Key"

Word = TypeVar("Word", bound=enum.StrEnum)


def new_id(backends: Backends, call: Call) -> str:
    """Return the id of what a call makes: that of the first attempt, where a key says so.

    :raises ConflictError: when the key was of another request.
    """
    made = str(uuid.uuid4())
    key = call.request.get_header(KEY_HEADER)
    if key is None:
        return made
    return backends.stores.keys.reserve(call.caller.project, key, _content(call), made)


def queue(
    backends: Backends,
    call: Call,
    kind: TaskKind,
    resource: str,
    parameters: Mapping[str, Any],
    require: Callable[[], None] = lambda: None,
) -> Task:
    """Queue a task of the caller's project, or return that of an earlier attempt.

    :param require: raises where the project has too much of what the task makes; called when it
        is queued, so that it counts. It is taken back then.
    :raises UnsupportedError: when no worker can do it.
    :raises ConflictError: when it was queued by an earlier attempt, and cancelled.
    :raises BacklogError: when the project has too many that have not ended.
    """
    if kind not in backends.kinds:
        raise exception.UnsupportedError(
            f"this release has no worker for {kind.value}", hint="upgrade ACStor"
        )
    earlier = _earlier(backends, call)
    if earlier is not None:
        return _uncancelled(earlier)
    _require_places(backends, call.caller.project, 1)
    new = NewTask(
        id=new_id(backends, call),
        project=call.caller.project,
        kind=kind,
        resource=resource,
        parameters=parameters,
        user=call.caller.user,
        request=call.caller.request_id,
    )
    task = _uncancelled(backends.stores.tasks.create(new))
    try:
        _require_places(backends, task.project, 0)
        require()
    except exception.AcstorError:
        backends.stores.tasks.forget(task.id)
        raise
    backends.announce_task()
    return task


def _content(call: Call) -> bytes:
    """Return that by which a repeated request is known."""
    return json.dumps([call.request.method, call.request.path, call.body], sort_keys=True).encode()


def _earlier(backends: Backends, call: Call) -> Task | None:
    """Return the task of an earlier attempt at a call.

    :raises ConflictError: when its key was of another request.
    """
    key, project = call.request.get_header(KEY_HEADER), call.caller.project
    if key is None:
        return None
    task_id = backends.stores.keys.find(project, key, _content(call))
    if task_id is None:
        return None
    with contextlib.suppress(exception.NotFoundError):
        return backends.stores.tasks.get(task_id, project)
    return None


def _uncancelled(task: Task) -> Task:
    if task.state is TaskState.CANCELLED:
        raise exception.ConflictError(
            f"the task {task.id} of that {KEY_HEADER} was cancelled", hint="take a new key"
        )
    return task


def _require_places(backends: Backends, project: str, more: int) -> None:
    """Refuse more tasks than a project may have.

    :param more: tasks that are not queued yet.
    :raises BacklogError: when it would have too many.
    """
    most = backends.unfinished_tasks_max
    if most and backends.stores.tasks.unfinished(project, are_asked_for=True) + more > most:
        raise BacklogError(
            f"the project has {most} tasks that have not ended, the most it may have"
        )


def accepted(task: Task) -> Answer:
    """Return the answer of a call that has queued a task."""
    return Answer({"task": fields_of(task)}, 202, {"Location": f"/v1/tasks/{task.id}"})


def fields_of(task: Task) -> dict[str, Any]:
    """Return a task as the API shows it."""
    error = task.error
    found: dict[str, Any] = {
        "id": task.id,
        "kind": task.kind.value,
        "state": task.state.value,
        "step": task.step or None,
        "progress": task.progress,
        "bytes_done": task.bytes_done,
        "bytes_total": task.bytes_total,
        "result": None if task.result is None else dict(task.result),
        "error": error
        and {
            "code": error.code,
            "title": f"The task {task.kind.value} failed",
            "detail": error.message,
            "hint": error.hint,
        },
        "created_at": text(task.created_at),
        "finished_at": optional_text(task.finished_at),
        "project_id": task.project,
    }
    if task.kind is TaskKind.CREATE:
        found["group_id"] = task.id  # of the versions that it takes
    return found


def words_of(texts: object, allowed: type[Word], what: str) -> frozenset[Word]:
    """Return the words of an enumeration that filters name: plain, or ``in:`` several.

    :raises ApiError: when one is none.
    """
    found: set[Word] = set()
    for each in texts if isinstance(texts, list) else []:
        for word in str(each).removeprefix("in:").removeprefix("eq:").split(","):
            try:
                found.add(allowed(word))
            except ValueError as error:
                raise ApiError(
                    f"query: {what} {word[:40]!r} is none",
                    hint=f"there are {', '.join(sorted(allowed))}",
                    code="acstor.query.invalid",
                ) from error
    return frozenset(found)
