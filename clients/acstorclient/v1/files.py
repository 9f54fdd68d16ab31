"""Files in versions, as the API shows them."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self


def printable(name: str) -> str:
    """Return a name out of somebody's disk in printable characters, others escaped.

    A terminal would obey some, and a browser turns the direction of text at others.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in name
    )


@dataclasses.dataclass(frozen=True)
class Partition:
    """A partition of a version's disk."""

    number: int
    """As Linux counts; 0: the whole disk."""
    size_bytes: int
    name: str
    file_system: str
    label: str
    is_readable: bool
    """True where its files are shown."""
    reason: str | None
    """Reason where they are not."""

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return a partition of an answer."""
        return cls(
            number=int(body["number"]),
            size_bytes=int(body.get("size_bytes") or 0),
            name=str(body.get("name") or ""),
            file_system=str(body.get("file_system") or ""),
            label=str(body.get("label") or ""),
            is_readable=body.get("is_readable") is True,
            reason=body.get("reason"),
        )


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A file, directory or link in a version. Links are shown, never followed."""

    name: str
    """With bytes that are no text as ``\\xNN``."""
    kind: str
    """``file``, ``directory``, ``link``; ``special``: a device, a pipe or a socket."""
    size_bytes: int
    modified_at: str
    mode: str
    uid: int
    gid: int
    target: str | None = None
    """Of a link."""

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return an entry of an answer."""
        return cls(
            name=str(body["name"]),
            kind=str(body["kind"]),
            size_bytes=int(body.get("size_bytes") or 0),
            modified_at=str(body.get("modified_at") or ""),
            mode=str(body.get("mode") or ""),
            uid=int(body.get("uid") or 0),
            gid=int(body.get("gid") or 0),
            target=body.get("target"),
        )


@dataclasses.dataclass(frozen=True)
class FileChange:
    """A path that two versions have differently."""

    path: str
    change: str
    """``added``, ``removed`` or ``changed``."""
    fields: tuple[str, ...]
    """Fields that differ where both have it."""
    before: FileEntry | None = None
    """As the other version has it."""
    after: FileEntry | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return a difference of an answer."""
        return cls(
            path=str(body["path"]),
            change=str(body["change"]),
            fields=tuple(str(field) for field in body.get("fields") or ()),
            before=_entry(body.get("before")),
            after=_entry(body.get("after")),
        )


def _entry(body: Mapping[str, Any] | None) -> FileEntry | None:
    return None if body is None else FileEntry.from_body(body)
