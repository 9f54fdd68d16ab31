"""The cluster as a whole: ring, decisions, pins, live state. For administrators."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from openstack import resource

from acstorclient.v1.base import Resource


class Ring(Resource):
    """The hash ring in force."""

    resource_key = "ring"
    base_path = "/ring"
    allow_fetch = True
    requires_id = False

    generation: int = resource.Body("generation")
    term: int | None = resource.Body("term")
    """Of the leader that published it."""
    arcs: list[dict[str, Any]] = resource.Body("arcs")
    """``host`` and ``share`` of each, 0 to 1."""


class Decision(Resource):
    """A decision of the policy service, with its reasons."""

    resources_key = "decisions"
    base_path = "/decisions"
    allow_list = True

    created_at: str = resource.Body("created_at")
    term: int = resource.Body("term")
    sequence: int = resource.Body("sequence")
    """Number in its term."""
    generation: int | None = resource.Body("generation")
    """Of the ring that came of it."""
    policy: str = resource.Body("policy")
    result: str = resource.Body("result")
    threshold: int | None = resource.Body("threshold")
    weights: dict[str, float] = resource.Body("weights")
    """By host; 1 is that of an ordinary one."""
    reasons: list[str] = resource.Body("reasons")


class Pin(Resource):
    """A weight in the ring that an administrator has fixed for a host."""

    resource_key = "pin"
    resources_key = "pins"
    base_path = "/pins"
    allow_create = True
    allow_list = True
    allow_delete = True

    host: str = resource.Body("host", alternate_id=True)
    weight: float = resource.Body("weight")
    """1 is that of an ordinary host."""


@dataclasses.dataclass(frozen=True)
class LiveState:
    """Traffic and state of the cluster now, for those who draw it."""

    body: Mapping[str, Any]
    etag: str
    """To be sent with the next request: nothing comes while nothing has changed."""

    @property
    def cursor(self) -> str:
        """Return the place in the sequence of changes that it is of."""
        return str(self.body.get("cursor", ""))
