"""Restores: a disk or a server as it was."""

import enum
from typing import Any

from openstack import resource

from acstorclient.v1.base import Resource, listing


class RestoreMethod(enum.StrEnum):
    """Way to a restored disk."""

    AUTO = "auto"
    """The one that loses nothing and moves fewest bytes, as far as that is known."""
    REBUILD = "rebuild"
    """Nova rebuilds the server from the version; refused where something would be lost."""
    IN_PLACE = "in_place"
    """Differing chunks are written below the stopped server; nothing else is touched."""


class Restore(Resource):
    """A restore that is going on or over."""

    resource_key = "restore"
    resources_key = "restores"
    base_path = "/restores"
    allow_fetch = True
    allow_list = True
    _query_mapping = listing("server_id", "volume_id", "state")

    version_id: str | None = resource.Body("version_id")
    group_id: str | None = resource.Body("group_id")
    server_id: str | None = resource.Body("server_id")
    volume_id: str | None = resource.Body("volume_id")
    method: str = resource.Body("method")
    """The one that was chosen, after that the one that was asked for."""
    reason: str | None = resource.Body("reason")
    """A sentence: why this method."""
    keep_current: bool = resource.Body("keep_current")
    """The present disk becomes a version first."""
    bytes_moved: int | None = resource.Body("bytes_moved")
    state: str = resource.Body("state")
    task_id: str | None = resource.Body("task_id")
    created_at: str | None = resource.Body("created_at")
    version_ids: list[str] | None = resource.Body("version_ids")
    """Versions of all disks that are restored."""
    restore_nvram: bool | None = resource.Body("restore_nvram")
    """UEFI variables are written with the root disk, where a version has them."""


class RestorePreview(Resource):
    """Restore of a server as it would go."""

    resource_key = "restore_preview"
    allow_fetch = True
    requires_id = False

    version_id: str = resource.Body("version_id")
    server_id: str = resource.Body("server_id")
    method: str | None = resource.Body("method")
    """None: it would be refused."""
    reason: str = resource.Body("reason")
    """A sentence: why this method, or why it would be refused."""
    hint: str | None = resource.Body("hint")
    """Alternative to a restore that would be refused."""
    losses: list[str] = resource.Body("losses")
    """Parts of the server that a rebuild would destroy."""
    methods: list[dict[str, Any]] | None = resource.Body("methods")
    """Both methods: whether each is possible, the bytes that it moves and of what, its losses."""
    compared_with: str | None = resource.Body("compared_with")
    """Version that told what the disk has; None: none did."""
