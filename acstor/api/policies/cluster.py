"""Rules of the cluster: for administrators."""

from acstor.api.policies.base import ADMINISTRATOR, rule

RULES = (
    rule("hosts:list", ADMINISTRATOR, "List hosts.", "GET /v1/hosts"),
    rule("hosts:show", ADMINISTRATOR, "Show a host.", "GET /v1/hosts/{host}"),
    rule("hosts:update", ADMINISTRATOR, "Drain a host, or undo that.", "PATCH /v1/hosts/{host}"),
    rule(
        "origin_members:list",
        ADMINISTRATOR,
        "List the members of the origin.",
        "GET /v1/origin/members",
    ),
    rule(
        "origin_members:show",
        ADMINISTRATOR,
        "Show a member of the origin.",
        "GET /v1/origin/members/{member}",
    ),
    rule(
        "origin_members:update",
        ADMINISTRATOR,
        "Drain a member of the origin, or undo that.",
        "PATCH /v1/origin/members/{member}",
    ),
    rule("ring:show", ADMINISTRATOR, "Show the ring.", "GET /v1/ring"),
    rule("decisions:list", ADMINISTRATOR, "Show the decision in force.", "GET /v1/decisions"),
    rule("pins:list", ADMINISTRATOR, "List pinned weights.", "GET /v1/pins"),
    rule("pins:create", ADMINISTRATOR, "Pin the weight of a host.", "POST /v1/pins"),
    rule("pins:delete", ADMINISTRATOR, "Unpin a host.", "DELETE /v1/pins/{host}"),
    rule("cluster:show", ADMINISTRATOR, "Show the live state of all hosts.", "GET /v1/cluster"),
)
