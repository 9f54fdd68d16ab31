"""Computing decisions again from a journal."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from acstor import exception
from acstor.cluster.ring.decision import Decision
from acstor.policy.decision_log import Inputs
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.evaluation import Pairs
from acstor.policy.evaluation_result import EvaluationResult


@dataclass(frozen=True)
class Replayed:
    """One decision, computed again."""

    at_ms: int
    recorded: Decision
    result: EvaluationResult

    @property
    def differences(self) -> list[str]:
        """Differences from the recorded decision; empty: the same decision."""
        again = self.result.decision
        if again is None:
            return [f"no decision now: {self.result.reason.value}, {self.result.detail}"]
        found = []
        for name in ("policy", "threshold", "similarity", "reason", "decided_at_ms"):
            before, now = getattr(self.recorded, name), getattr(again, name)
            if before != now:
                found.append(f"{name}: {before!r:.100} recorded, {now!r:.100} now")
        hosts = self.recorded.weights.keys() | again.weights.keys()
        for host in sorted(hosts):
            before, now = self.recorded.weights.get(host), again.weights.get(host)
            if before != now:
                found.append(f"weight of {host}: {before} recorded, {now} now")
        return found


def replay(record: Mapping[str, Any]) -> Replayed:
    """Compute the decision of a record again.

    Similarities are taken as recorded: sketches are not in the journal.

    :raises AcstorError: when the record is malformed, or names a plug-in that there is not.
    """
    try:
        inputs = Inputs.from_json(record["inputs"])
        recorded = _decision(record["decision"])
        at_ms = int(record["at_ms"])
    except (KeyError, TypeError, ValueError) as error:
        raise exception.InvalidError(f"malformed record: {error!r:.100}") from error

    def pairs(givers: Collection[str], receivers: Collection[str]) -> Pairs:
        del givers, receivers
        return recorded.similarity

    maker = DecisionMaker(
        inputs.settings, topology=inputs.topology, similarity=pairs, history=inputs.history
    )
    return Replayed(
        at_ms, recorded, maker.evaluate(inputs.collection, inputs.previous, inputs.pins)
    )


def _decision(fields: Any) -> Decision:
    return Decision.parse(json.dumps(fields).encode())
