"""Requests that begin long work: each queues a task, and repeating it queues no second one."""

import enum
import json
import uuid
from collections.abc import Mapping
from typing import Any, TypeVar

from acstor import exception
from acstor.api.backends import Backends
from acstor.api.errors import ApiError
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
    content = json.dumps(
        [call.request.method, call.request.path, call.body], sort_keys=True
    ).encode()
    return backends.stores.keys.reserve(call.caller.project, key, content, made)


def queue(
    backends: Backends,
    call: Call,
    kind: TaskKind,
    resource: str,
    parameters: Mapping[str, Any],
) -> Task:
    """Queue a task of the caller's project.

    :raises UnsupportedError: when no worker can do it.
    :raises ConflictError: when it was queued by an earlier attempt, and cancelled.
    """
    if kind not in backends.kinds:
        raise exception.UnsupportedError(
            f"this release has no worker for {kind.value}", hint="upgrade ACStor"
        )
    task = backends.stores.tasks.create(
        NewTask(
            id=new_id(backends, call),
            project=call.caller.project,
            kind=kind,
            resource=resource,
            parameters=parameters,
            user=call.caller.user,
            request=call.caller.request_id,
        )
    )
    if task.state is TaskState.CANCELLED:
        raise exception.ConflictError(
            f"the task {task.id} of that {KEY_HEADER} was cancelled", hint="take a new key"
        )
    return task


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
