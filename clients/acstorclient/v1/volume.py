"""Volumes: durability and recovery point."""

import enum
from typing import Any

from openstack import resource

from acstorclient.v1.base import Resource


class Durability(enum.StrEnum):
    """Moment at which a write of a volume is acknowledged, and whether it travels."""

    WRITE_THROUGH = "write-through"
    """On the host's disk and in the origin."""
    WRITE_BACK = "write-back"
    """On the host's disk; it is pushed to the origin every period."""
    NONE = "none"
    """On the host's disk; it never leaves the host."""


class Volume(Resource):
    """A volume of Cinder that ACStor serves."""

    resource_key = "volume"
    resources_key = "volumes"
    base_path = "/volumes"
    allow_fetch = True
    allow_list = True
    allow_commit = True
    _query_mapping = resource.QueryParameters("name")

    durability: str = resource.Body("durability")
    interval_seconds: float | None = resource.Body("interval_seconds")
    """Longest time between two pushes to the origin."""
    recovery_point: dict[str, Any] | None = resource.Body("recovery_point")
    """``at`` and ``age_seconds`` of what the loss of the host would leave."""
    dirty_bytes: int | None = resource.Body("dirty_bytes")
    """Written, and on the host only."""
    size_bytes: int | None = resource.Body("size_bytes")
    host: str | None = resource.Body("host")
    """For administrators."""
