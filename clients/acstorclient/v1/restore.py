"""Restores: a disk or a server as it was."""

import enum

from openstack import resource

from acstorclient.v1.base import Resource, listing


class RestoreMethod(enum.StrEnum):
    """Way to a restored disk."""

    AUTO = "auto"
    """The one that moves the fewest bytes and loses nothing."""
    REBUILD = "rebuild"
    """Nova rebuilds the server from the version: UEFI variables are lost."""
    IN_PLACE = "in_place"
    """The server is stopped, its disk exchanged below it."""


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
