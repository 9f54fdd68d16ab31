"""Load history: what an evaluation needs of those before.

Everything else it is told each time. It is lost when a leader is: the next one then waits for two
successive collections of its own.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception
from acstor.policy.forecasts.base import Series


@dataclass(frozen=True, slots=True)
class HostHistory:
    """The history of one host."""

    streak: int = 0
    """Collections in a row in which it was overloaded."""
    history: tuple[tuple[float, float], ...] = ()
    """Extra traffic received and sent at the last collections, oldest first."""
    series_in: Series | None = None
    series_out: Series | None = None

    def to_json(self) -> list[Any]:
        """Return plain JSON types, for journals."""
        return [self.streak, [list(pair) for pair in self.history], self.series_in, self.series_out]

    @classmethod
    def from_json(cls, fields: Any) -> "HostHistory":
        """Return what :meth:`to_json` returned."""
        streak, history, series_in, series_out = fields
        return cls(
            int(streak),
            tuple((float(received), float(sent)) for received, sent in history),
            None if series_in is None else tuple(series_in),
            None if series_out is None else tuple(series_out),
        )


@dataclass(frozen=True)
class LoadHistory:
    """The history of all hosts, and what was changed lately."""

    hosts: Mapping[str, HostHistory] = field(default_factory=dict)
    quiet_streak: int = 0
    """Collections in a row without any busy host."""
    cool_down: int = 0
    """Collections still to wait before weights may change again."""
    hysteresis_level: int = 0
    """Changes for overload of late: each makes the next one want more of a reason."""
    no_overload_streak: int = 0
    """Collections in a row without overload, since the last change or a lower hysteresis."""
    is_unfinished: bool = False
    """True if the last step ended before its target."""
    candidate: int | None = None
    """The threshold that the last collections asked for."""
    candidate_streak: int = 0
    pinned: frozenset[str] = frozenset()
    """Hosts whose weights were pinned."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, for journals."""
        return {
            "hosts": {name: host.to_json() for name, host in sorted(self.hosts.items())},
            "calm": self.quiet_streak,
            "cool_down": self.cool_down,
            "reluctance": self.hysteresis_level,
            "quiet": self.no_overload_streak,
            "is_unfinished": self.is_unfinished,
            "candidate": self.candidate,
            "candidate_streak": self.candidate_streak,
            "pinned": sorted(self.pinned),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "LoadHistory":
        """Return what :meth:`to_json` returned.

        :raises InvalidError: when it is something else.
        """
        try:
            return cls(
                {name: HostHistory.from_json(host) for name, host in fields["hosts"].items()},
                int(fields["calm"]),
                int(fields["cool_down"]),
                int(fields["reluctance"]),
                int(fields["quiet"]),
                bool(fields["is_unfinished"]),
                fields["candidate"],
                int(fields["candidate_streak"]),
                frozenset(fields["pinned"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise exception.InvalidError(f"malformed history: {error!r:.100}") from error


def without_change(history: LoadHistory, before: LoadHistory) -> LoadHistory:
    """Return the history after a collection whose decision was not put in force.

    So whoever stands by knows what the hosts did, and does not cool down from a change that the
    leader may never have made: it may have been killed while it was about to.

    :param before: the collection.
    """
    return dataclasses.replace(
        history,
        cool_down=max(0, before.cool_down - 1),
        hysteresis_level=before.hysteresis_level,
        is_unfinished=before.is_unfinished,
        pinned=before.pinned,
    )
