"""Schemas of files of versions."""

from acstor.api.schemas import parts
from acstor.api.schemas.parts import Schema
from acstor.browsing.disk_files import FileKind
from acstor.browsing.tree_differences import Change

PATH: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 16384,
    "pattern": "^/",
    "description": "Absolute path. Bytes that are no text, and backslashes, as \\xNN.",
}
PARTITION: Schema = {
    "type": "integer",
    "minimum": 0,
    "maximum": (1 << 32) - 1,
    "description": "Number of a partition; 0: a disk without a table.",
}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 1000}
NULLABLE_TEXT = parts.nullable(parts.TEXT)

FILE = parts.record(
    {
        "name": parts.TEXT,
        "kind": {"type": "string", "enum": [one.value for one in FileKind]},
        "size_bytes": parts.COUNT,
        "mode": {"type": "string", "pattern": "^[0-7]{4}$"},
        "uid": parts.COUNT,
        "gid": parts.COUNT,
        "modified_at": NULLABLE_TEXT,
        "target": NULLABLE_TEXT,
    }
)
PARTITIONS = parts.record(
    {
        "partitions": {
            "type": "array",
            "items": parts.record(
                {
                    "number": parts.COUNT,
                    "start_bytes": parts.COUNT,
                    "size_bytes": parts.COUNT,
                    "name": parts.TEXT,
                    "file_system": parts.TEXT,
                    "label": parts.TEXT,
                    "is_readable": parts.FLAG,
                    "reason": NULLABLE_TEXT,
                }
            ),
        }
    }
)
LIST_QUERY = parts.changes(
    {"partition": PARTITION, "path": PATH, "limit": LIMIT, "marker": parts.TEXT}
)
LISTING = parts.record(
    {"file": FILE, "files": {"type": "array", "items": FILE}, "links": parts.LINKS}
)
"""A file, and where it is a directory what is in it."""
CONTENT_QUERY = parts.changes({"partition": PARTITION, "path": PATH}, required=["path"])
DIFF_QUERY = parts.changes(
    {
        "against": parts.UUID,
        "partition": PARTITION,
        "path": PATH,
        "limit": LIMIT,
        "marker": parts.TEXT,
    },
    required=["against"],
)
DIFF = parts.record(
    {
        "files": {
            "type": "array",
            "items": parts.record(
                {
                    "path": parts.TEXT,
                    "change": {"type": "string", "enum": [one.value for one in Change]},
                    "before": parts.nullable(FILE),
                    "after": parts.nullable(FILE),
                    "fields": {"type": "array", "items": parts.TEXT},
                }
            ),
        },
        "links": parts.LINKS,
    }
)
