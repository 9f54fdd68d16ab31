"""Rules of volumes."""

from acstor.api.policies.base import MANAGER, READER, rule

RULES = (
    rule("volumes:list", READER, "List volumes that ACStor serves.", "GET /v1/volumes"),
    rule("volumes:show", READER, "Show a volume.", "GET /v1/volumes/{volume_id}"),
    rule(
        "volumes:update",
        MANAGER,
        "Change the durability of a volume.",
        "PATCH /v1/volumes/{volume_id}",
    ),
)
