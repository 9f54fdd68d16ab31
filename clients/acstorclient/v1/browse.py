"""Sessions that look into a version, and the files they show."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from openstack import resource

from acstorclient.v1.base import Resource


class Browse(Resource):
    """A session that reads the file systems of a version; it ends after 15 minutes unused."""

    resource_key = "browse"
    base_path = "/browses"
    allow_fetch = True
    allow_delete = True

    version_id: str = resource.Body("version_id")
    state: str = resource.Body("state")
    task_id: str | None = resource.Body("task_id")
    created_at: str | None = resource.Body("created_at")
    expires_at: str | None = resource.Body("expires_at")


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A file, folder or link in a version. Links are shown, never followed."""

    name: str
    type: str
    """``file``, ``folder``, ``link``, or of devices and pipes their kind."""
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
            type=str(body["type"]),
            size_bytes=int(body.get("size_bytes") or 0),
            modified_at=str(body.get("modified_at") or ""),
            mode=str(body.get("mode") or ""),
            uid=int(body.get("uid") or 0),
            gid=int(body.get("gid") or 0),
            target=body.get("target"),
        )
