"""Computing decisions who sleeps again, from a journal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acstor import exception
from acstor.origin.replicated.power.deciding import (
    PowerDecision,
    PowerInputs,
    decide,
    load_policy,
)


@dataclass(frozen=True)
class ReplayedPower:
    """One decision, computed again."""

    at_ms: int
    recorded: Mapping[str, Any]
    inputs: PowerInputs
    decision: PowerDecision

    @property
    def differences(self) -> list[str]:
        """Differences from the recorded decision; empty: the same decision."""
        again = self.decision.to_json()
        found = []
        for name in ("change", "reason"):
            if self.recorded.get(name) != again[name]:
                found.append(
                    f"{name}: {self.recorded.get(name)!r:.100} recorded, {again[name]!r:.100} now"
                )
        members = self.recorded.get("members")
        before = members if isinstance(members, dict) else {}
        for name in sorted(before.keys() | again["members"].keys()):
            if before.get(name) != again["members"].get(name):
                found.append(
                    f"{name}: {before.get(name)!r:.100} recorded, "
                    f"{again['members'].get(name)!r:.100} now"
                )
        return found


def replay_power(record: Mapping[str, Any]) -> ReplayedPower:
    """Compute the decision of a record again.

    :raises InvalidError: when the record is malformed.
    :raises UnsupportedError: when it names a policy that there is not.
    """
    try:
        recorded, at_ms = record["decision"], int(record["at_ms"])
        inputs = PowerInputs.from_json(record["inputs"])
        if not isinstance(recorded, dict):
            raise TypeError("the decision is no object")
    except (KeyError, TypeError, ValueError) as error:
        raise exception.InvalidError(f"malformed record: {error!r:.100}") from error
    return ReplayedPower(
        at_ms, recorded, inputs, decide(inputs, load_policy(inputs.settings.policy))
    )
