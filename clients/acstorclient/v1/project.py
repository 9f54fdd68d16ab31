"""A project's defaults, usage and limits."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from openstack import resource

from acstorclient.v1.base import Resource


class Defaults(Resource):
    """Rules for servers and volumes of a project that say nothing themselves."""

    resource_key = "defaults"
    base_path = "/defaults"
    allow_fetch = True
    requires_id = False

    version_on: list[str] = resource.Body("version_on")
    """Events before which a version is taken: ``shutdown``, ``resize``, ``rebuild``."""
    version_keep: dict[str, Any] = resource.Body("version_keep")
    """Retention in restic's words."""
    on_delete: bool = resource.Body("on_delete")
    """A deleted server leaves a version."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Versions of a project, and what it may have; -1 is no limit."""

    usage: Mapping[str, Any]
    limits: Mapping[str, Any]
