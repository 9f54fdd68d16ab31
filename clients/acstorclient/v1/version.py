"""Versions of disks, groups of one moment, differences."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from openstack import resource

from acstorclient.v1.base import Resource, listing


class Consistency(enum.StrEnum):
    """Content of a disk at the moment of a version."""

    BEST = "best"
    """Asked for: ``fs`` where the guest agent answers, else ``crash``."""
    CRASH = "crash"
    """As after a power cut."""
    FS = "fs"
    """File systems frozen by the guest agent."""


class Version(Resource):
    """One moment of one disk. A snapshot of Cinder is one, too, under its own id."""

    resource_key = "version"
    resources_key = "versions"
    base_path = "/versions"
    allow_fetch = True
    allow_list = True
    allow_commit = True
    allow_delete = True
    _query_mapping = listing(
        "name",
        "server_id",
        "volume_id",
        "disk",
        "group_id",
        "state",
        "trigger",
        "consistency",
        "locked",
        "created_at",
        "expires_at",
    )

    group_id: str = resource.Body("group_id")
    """Group of versions of the same moment."""
    server_id: str | None = resource.Body("server_id")
    volume_id: str | None = resource.Body("volume_id")
    disk: str = resource.Body("disk")
    """Device of the server, ``vda``."""
    state: str = resource.Body("state")
    is_restorable: bool = resource.Body("restorable")
    consistency: str = resource.Body("consistency")
    trigger: str = resource.Body("trigger")
    """Reason of its making: ``manual``, ``schedule``, an event of the server."""
    parent_id: str | None = resource.Body("parent_id")
    base_image_id: str | None = resource.Body("base_image_id")
    size_bytes: int = resource.Body("size_bytes")
    """Size of the disk."""
    unique_bytes: int = resource.Body("unique_bytes")
    """Stored for this version alone."""
    shared_bytes: int = resource.Body("shared_bytes")
    """Stored, and needed by others too."""
    created_at: str = resource.Body("created_at")
    expires_at: str | None = resource.Body("expires_at")
    lock: dict[str, Any] | None = resource.Body("lock")
    """``reason`` and ``until`` of a lock."""
    has_nvram: bool = resource.Body("has_nvram")
    project_id: str = resource.Body("project_id")
    metadata: dict[str, str] = resource.Body("metadata")
    host: str | None = resource.Body("host")
    """Host that alone has it yet, for administrators."""


@dataclasses.dataclass(frozen=True)
class VersionGroup:
    """Versions of one moment: the disks of a server, or of a volume alone."""

    id: str
    versions: tuple[Version, ...]

    @property
    def is_restorable(self) -> bool:
        """Return whether each of its disks can be restored."""
        return bool(self.versions) and all(each.is_restorable for each in self.versions)

    @property
    def unique_bytes(self) -> int:
        """Return the sum over its disks."""
        return sum(each.unique_bytes or 0 for each in self.versions)


def grouped(versions: Iterable[Version]) -> list[VersionGroup]:
    """Return the groups of versions, in the order of their first ones."""
    found: dict[str, list[Version]] = {}
    for each in versions:
        found.setdefault(each.group_id, []).append(each)
    return [VersionGroup(group_id, tuple(members)) for group_id, members in found.items()]


@dataclasses.dataclass(frozen=True)
class VersionDiff:
    """Parts of a disk that two versions have differently."""

    changed_bytes: int
    extents: tuple[tuple[int, int], ...]
    """Offset and length, bytes, ascending."""

    @classmethod
    def from_pages(cls, pages: Sequence[Mapping[str, Any]]) -> Self:
        """Return the difference that comes in pages; each has the sum of all."""
        extents = [
            (int(offset), int(length)) for page in pages for offset, length in page["extents"]
        ]
        return cls(int(pages[0]["changed_bytes"]), tuple(extents))
