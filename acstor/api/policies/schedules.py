"""Rules of schedules."""

from acstor.api.policies.base import MEMBER, READER, rule

_ONE = "/v1/schedules/{schedule_id}"
_TARGET = f"{_ONE}/targets/{{target_id}}"

RULES = (
    rule("schedules:list", READER, "List schedules.", "GET /v1/schedules"),
    rule("schedules:show", READER, "Show a schedule.", f"GET {_ONE}"),
    rule("schedules:preview", READER, "Show what a schedule does next.", f"GET {_ONE}/preview"),
    rule("schedules:create", MEMBER, "Make a schedule.", "POST /v1/schedules"),
    rule("schedules:update", MEMBER, "Change a schedule.", f"PATCH {_ONE}"),
    rule("schedules:delete", MEMBER, "Delete a schedule.", f"DELETE {_ONE}"),
    rule("schedules:add_target", MEMBER, "Have it take a server, too.", f"PUT {_TARGET}"),
    rule("schedules:remove_target", MEMBER, "Have it take one no more.", f"DELETE {_TARGET}"),
)
