"""Rules of versions."""

from acstor.api.policies.base import MANAGER, MEMBER, READER, rule

_ONE = "/v1/versions/{version_id}"

RULES = (
    rule("versions:list", READER, "List versions.", "GET /v1/versions"),
    rule("versions:show", READER, "Show a version.", f"GET {_ONE}"),
    rule("versions:diff", READER, "Compare two versions of a disk.", f"GET {_ONE}/diff"),
    rule(
        "versions:data",
        MEMBER,
        "Download the disk of a version.",
        f"GET {_ONE}/data",
        f"HEAD {_ONE}/data",
    ),
    rule(
        "versions:partitions",
        MEMBER,
        "List the partitions of a version's disk.",
        f"GET {_ONE}/partitions",
    ),
    rule("versions:files", MEMBER, "List directories of a version.", f"GET {_ONE}/files"),
    rule(
        "versions:file_content",
        MEMBER,
        "Download a file of a version.",
        f"GET {_ONE}/files/content",
        f"HEAD {_ONE}/files/content",
    ),
    rule(
        "versions:file_archive",
        MEMBER,
        "Download a directory of a version.",
        f"GET {_ONE}/files/archive",
    ),
    rule(
        "versions:file_diff",
        MEMBER,
        "Compare two versions by their files.",
        f"GET {_ONE}/files/diff",
    ),
    rule("versions:create", MEMBER, "Take versions of a server's disks.", "POST /v1/versions"),
    rule("versions:update", MEMBER, "Change name, expiry or metadata.", f"PATCH {_ONE}"),
    rule("versions:delete", MEMBER, "Delete a version.", f"DELETE {_ONE}"),
    rule("versions:create_image", MEMBER, "Make the image of a version.", f"PUT {_ONE}/image"),
    rule("versions:delete_image", MEMBER, "Delete the image of a version.", f"DELETE {_ONE}/image"),
    rule("versions:lock", MEMBER, "Lock a version against deletion.", f"PUT {_ONE}/lock"),
    rule("versions:unlock", MANAGER, "Take the lock off a version.", f"DELETE {_ONE}/lock"),
)
