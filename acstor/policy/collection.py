"""Loads of the hosts at one moment, from which decisions are made."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception

DEFAULT_LINK = 1.25e9
"""Speed assumed of a link of which nothing is known: 10 Gbit/s, bytes per second."""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Load of one host; rates in bytes per second.

    :raises InvalidError: for a rate that is negative or not finite, or a link without speed.
    """

    extra_in: float
    """Received, and not caused by ACStor."""
    extra_out: float
    moved_in: float = 0.0
    """Received by the data plane; 0 where it is not known."""
    moved_out: float = 0.0
    link: float = DEFAULT_LINK
    """Speed of the host's links in one direction."""
    load: float | None = None
    """Of the data plane, 0 to 1; None: not known."""
    age: int = 0
    """Collection intervals since it was measured; 0: since the last collection."""
    streak: int | None = None
    """Collection intervals for which what the host told has shown overload, without a gap; None:
    nobody counted."""

    def __post_init__(self) -> None:
        for name in ("extra_in", "extra_out", "moved_in", "moved_out", "link"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (name == "link" and value == 0):
                raise exception.InvalidError(f"{name} = {value!r:.30}")

    def share(self, direction: str) -> float:
        """Return what part of the link is busy, ``in`` or ``out``; above 1 where samples err."""
        return (self.extra_traffic(direction) + self.moved_traffic(direction)) / self.link

    def extra_traffic(self, direction: str) -> float:
        """Return the extra traffic ``in`` or ``out``, bytes per second."""
        return self.extra_in if direction == "in" else self.extra_out

    def moved_traffic(self, direction: str) -> float:
        """Return what the data plane moved ``in`` or ``out``, bytes per second."""
        return self.moved_in if direction == "in" else self.moved_out

    @property
    def utilisation(self) -> float:
        """Part of the link that is busy in the busier direction."""
        return max(self.share("in"), self.share("out"))

    def to_json(self) -> list[Any]:
        """Return plain JSON types, for journals."""
        counted = [] if self.streak is None else [self.streak]
        return [
            self.extra_in, self.extra_out, self.moved_in, self.moved_out,
            self.link, self.load, self.age, *counted,
        ]  # fmt: skip

    @classmethod
    def from_json(cls, fields: list[Any]) -> "HostLoad":
        """Return what :meth:`to_json` returned."""
        return cls(*fields)


@dataclass(frozen=True)
class Collection:
    """Loads of all hosts."""

    at: float
    """POSIX time, seconds."""
    hosts: Mapping[str, HostLoad] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """Hosts that are known and not to be decided about, and why: ``silent``, ``draining`` or
    ``down``. Their weights stay as they are: a host that says nothing is not taken to be idle."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, for journals."""
        return {
            "at": self.at,
            "hosts": {name: load.to_json() for name, load in sorted(self.hosts.items())},
            "missing": dict(sorted(self.missing.items())),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Collection":
        """Return what :meth:`to_json` returned.

        :raises InvalidError: when it is something else.
        """
        try:
            return cls(
                float(fields["at"]),
                {name: HostLoad.from_json(load) for name, load in fields["hosts"].items()},
                dict(fields["missing"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise exception.InvalidError(f"malformed collection: {error!r:.100}") from error
