"""A host as its agent describes it to the others."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from acstor import exception

MEMBER_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""
TEXT_LENGTH_MAX = 512
"""Longest text of a member, characters."""


@dataclasses.dataclass(frozen=True)
class Member:
    """One host of the deployment."""

    name: str
    peer_address: str
    """``ip:port`` of its peer server."""
    metrics_address: str
    """``ip:port`` of its agent's Prometheus endpoint."""
    capacity_bytes: int
    """Capacity of its chunk store."""
    release: str
    topology: str = ""
    is_draining: bool = False

    def to_capabilities(self) -> dict[str, Any]:
        """Return the member as tooz carries it."""
        return {"version": MEMBER_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_capabilities(cls, name: str, capabilities: object) -> "Member":
        """Return the member that joined as ``name``.

        :raises InvalidError: when the capabilities are not those of a member.
        """
        if not isinstance(capabilities, Mapping):
            raise exception.InvalidError(f"member {name!r} tells nothing of itself")
        version = capabilities.get("version")
        if not isinstance(version, int) or version < MEMBER_VERSION:
            raise exception.InvalidError(f"member {name!r} has no version")
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = capabilities.get(field.name)
            if type(value) is not field.type or (
                isinstance(value, str) and len(value) > TEXT_LENGTH_MAX
            ):
                raise exception.InvalidError(f"member {name!r}: {field.name} = {value!r:.100}")
            values[field.name] = value
        member = cls(**values)
        if member.name != name or member.capacity_bytes < 0:
            raise exception.InvalidError(f"member {name!r} describes {member.name!r}")
        return member
