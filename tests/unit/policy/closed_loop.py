"""A small model of hosts whose requests follow the weights: what the policy causes, it sees.

Every host reads evenly; what it reads is sent by the owners, in proportion to their weights. Where
a link is full, extra traffic either keeps what it has (as UDP does) or shares the link evenly with
what the data plane moves (as TCP does): then the extra traffic that is seen depends on the weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from acstor.cluster.ring.decision import Decision
from acstor.policy.collection import Collection, HostLoad
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.evaluation_result import EvaluationResult
from acstor.policy.settings import PolicySettings

LINK = 125e6
INTERVAL = 10.0

Extra = Callable[[int], Sequence[float]]
"""Takes the number of a collection; returns each host's extra traffic sent, in links."""


@dataclass
class Loop:
    """One policy in charge of some hosts."""

    settings: PolicySettings
    demand: float
    """Reads of a host, in links."""
    is_elastic: bool = False
    decision: Decision | None = None
    changes: list[tuple[int, EvaluationResult]] = field(default_factory=list)

    def run(self, extra: Extra, collections: int) -> list[tuple[int, EvaluationResult]]:
        """Return the changes of weights, with the numbers of their collections."""
        maker = DecisionMaker(self.settings)
        for number in range(collections):
            collection = self.collect(number, extra(number))
            outcome = maker.decide(collection, self.decision)
            if outcome.decision is not None:
                self.decision = outcome.decision
                self.changes.append((number, outcome))
        return self.changes

    def collect(self, number: int, extra: Sequence[float]) -> Collection:
        """Return what the hosts measure while the decision is in force."""
        names = [f"h{n}" for n in range(len(extra))]
        weights = {n: self.decision.weight_of(n) if self.decision else 1 for n in names}
        total = sum(weights.values())
        hosts = {}
        for name, own in zip(names, extra, strict=True):
            moved_in, seen_in = self._shared(self.demand, own)
            moved_out, seen_out = self._shared(
                self.demand * len(names) * weights[name] / total, own
            )
            hosts[name] = HostLoad(
                seen_in * LINK, seen_out * LINK, moved_in * LINK, moved_out * LINK, LINK
            )
        return Collection(number * INTERVAL, hosts)

    def _shared(self, moved: float, extra: float) -> tuple[float, float]:
        if moved + extra <= 1.0:
            return moved, extra
        if self.is_elastic:
            half = max(0.5, 1.0 - min(moved, extra))
            return (half, 1 - half) if moved >= extra else (1 - half, half)
        return max(0.0, 1.0 - extra), min(1.0, extra)


def shares(decision: Decision) -> Mapping[str, float]:
    total = sum(decision.weights.values())
    return {name: weight / total for name, weight in decision.weights.items()}
