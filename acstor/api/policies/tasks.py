"""Rules of tasks."""

from acstor.api.policies.base import MEMBER, READER, rule

RULES = (
    rule("tasks:list", READER, "List tasks.", "GET /v1/tasks"),
    rule("tasks:show", READER, "Show a task.", "GET /v1/tasks/{task_id}"),
    rule("tasks:cancel", MEMBER, "Cancel a task.", "DELETE /v1/tasks/{task_id}"),
)
