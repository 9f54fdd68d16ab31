"""Rules of versions."""

from acstor.api.policies.base import MANAGER, MEMBER, READER, rule

_ONE = "/v1/versions/{version_id}"

RULES = (
    rule("versions:list", READER, "List versions.", "GET /v1/versions"),
    rule("versions:show", READER, "Show a version.", f"GET {_ONE}"),
    rule("versions:diff", READER, "Compare two versions of a disk.", f"GET {_ONE}/diff"),
    rule("versions:create", MEMBER, "Take versions of a server's disks.", "POST /v1/versions"),
    rule("versions:update", MEMBER, "Change name, expiry or metadata.", f"PATCH {_ONE}"),
    rule("versions:delete", MEMBER, "Delete a version.", f"DELETE {_ONE}"),
    rule("versions:lock", MEMBER, "Lock a version against deletion.", f"PUT {_ONE}/lock"),
    rule("versions:unlock", MANAGER, "Take the lock off a version.", f"DELETE {_ONE}/lock"),
)
