"""Rules of a project's defaults and usage."""

from acstor.api.policies.base import MANAGER, READER, rule

RULES = (
    rule("defaults:show", READER, "Show the defaults of a project.", "GET /v1/defaults"),
    rule("defaults:set", MANAGER, "Set the defaults of a project.", "PUT /v1/defaults"),
    rule("usage:show", READER, "Show usage and limits of a project.", "GET /v1/usage"),
)
