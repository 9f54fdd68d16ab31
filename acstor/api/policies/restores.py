"""Rules of restores."""

from acstor.api.policies.base import MEMBER, READER, rule

RULES = (
    rule("restores:list", READER, "List restores.", "GET /v1/restores"),
    rule("restores:show", READER, "Show a restore.", "GET /v1/restores/{restore_id}"),
    rule(
        "restores:preview",
        READER,
        "Show how a version would be put back into a server, and what that would destroy.",
        "GET /v1/versions/{version_id}/restore-preview",
    ),
    rule("restores:create", MEMBER, "Put a version back in place.", "POST /v1/restores"),
)
