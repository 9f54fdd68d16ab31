"""The records of a policy service's journal: every decision with all that it was made from.

The page is ``doc/source/reference/formats/policy-journal.rst``.
"""

import json
from dataclasses import dataclass
from typing import Any

from acstor import exception, untrusted_json
from acstor.cluster.ring.decision import Decision
from acstor.policy.collection import Collection
from acstor.policy.evaluation_result import EvaluationResult
from acstor.policy.load_history import LoadHistory
from acstor.policy.pins import Pins
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology


@dataclass(frozen=True)
class Inputs:
    """All that one decision was made from."""

    settings: PolicySettings
    collection: Collection
    history: LoadHistory
    previous: Decision | None
    pins: Pins
    topology: Topology | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "settings": self.settings.to_json(),
            "collection": self.collection.to_json(),
            "memory": self.history.to_json(),
            "previous": _plain(self.previous),
            "pins": self.pins.to_json(),
            "topology": self.topology.to_json() if self.topology else None,
        }

    @classmethod
    def from_json(cls, fields: Any) -> "Inputs":
        """Return what :meth:`to_json` returned.

        :raises AcstorError: when it is something else.
        """
        try:
            previous, topology = fields["previous"], fields["topology"]
            return cls(
                PolicySettings.from_json(fields["settings"]),
                Collection.from_json(fields["collection"]),
                LoadHistory.from_json(fields["memory"]),
                None if previous is None else Decision.parse(json.dumps(previous).encode()),
                Pins.from_json(fields["pins"]),
                None if topology is None else Topology.parse(topology),
            )
        except (KeyError, TypeError) as error:
            raise exception.InvalidError(f"malformed inputs: {error!r:.100}") from error


def decision_record(inputs: Inputs, result: EvaluationResult) -> dict[str, Any]:
    """Return the record of a decision that is about to be published."""
    return {
        "kind": "decision",
        "inputs": inputs.to_json(),
        "decision": _plain(result.decision),
        "reason": result.reason.value,
        "detail": result.detail,
        "moved_share": result.moved_share,
    }


def _plain(decision: Decision | None) -> Any:
    return None if decision is None else untrusted_json.load(decision.encode(), "the decision")
