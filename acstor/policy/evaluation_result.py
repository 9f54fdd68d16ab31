"""Result of an evaluation, with its reasons."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor.cluster.ring.decision import Decision
from acstor.policy.load_history import LoadHistory


class Reason(enum.StrEnum):
    """Reason for which something was changed, or nothing."""

    OVERLOAD = "overload"
    """Overloaded hosts give weight away."""
    CONTINUED = "continued"
    """The step before was bounded, and hosts still are overloaded."""
    QUIET = "calm"
    """No host has been busy for a while: weights go back."""
    PINNED = "pinned"
    """The operator pinned or unpinned something."""
    THRESHOLD = "threshold"
    """Only the threshold changes."""

    EMPTY = "empty"
    """No host tells anything."""
    BLIND = "blind"
    """More than half of the hosts are silent: that is not to be decided on."""
    FROZEN = "frozen"
    """The operator froze the decision."""
    NOT_OVERLOADED = "not-overloaded"
    WAITING = "waiting"
    """Hosts are overloaded, but not for long enough."""
    COOLING_DOWN = "cooling-down"
    RELIEVED = "relieved"
    """The overloaded hosts have about the weights that they should have."""

    @property
    def is_change(self) -> bool:
        """True if it is a reason for a new decision."""
        return self in _CHANGES


_CHANGES = frozenset(
    {Reason.OVERLOAD, Reason.CONTINUED, Reason.QUIET, Reason.PINNED, Reason.THRESHOLD}
)


class Part(enum.StrEnum):
    """Part of one host in a decision."""

    GIVES = "gives"
    RECEIVES = "receives"
    KEEPS = "keeps"
    PINNED = "pinned"
    SILENT = "silent"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(frozen=True)
class Explanation:
    """Reasons for the weight of one host. Weights are in ordinary hosts'."""

    extra_in: float | None
    """As it was decided with: the mean of the last collections, or a forecast; bytes per second.
    None: not known."""
    extra_out: float | None
    link: float | None
    utilisation: float | None
    """Of the link at this collection, in the busier direction, with what the data plane moved."""
    is_overloaded: bool
    streak: int
    """Collections in a row in which it was overloaded."""
    in_force: float
    target: float
    """Weight that the policy asks for."""
    decided: float
    part: Part

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "extra_in": self.extra_in,
            "extra_out": self.extra_out,
            "link": self.link,
            "utilisation": self.utilisation,
            "is_overloaded": self.is_overloaded,
            "streak": self.streak,
            "in_force": self.in_force,
            "target": self.target,
            "decided": self.decided,
            "part": self.part.value,
        }


@dataclass(frozen=True)
class EvaluationResult:
    """Result of the evaluation of one collection."""

    decision: Decision | None
    """None: what is in force stays."""
    reason: Reason
    detail: str
    """For people."""
    history: LoadHistory
    """For the next collection."""
    moved_share: float = 0.0
    """Least part of the circle that the new weights move."""
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
