"""Decisions about recorded loads, step by step: a change of the code must not change one.

``tests/golden/policy-decisions-v1.json`` has the digest of all decisions, explanations and what is
remembered, by settings, and the reasons that came up.
"""

import hashlib
import json
import pathlib
import random
from typing import Any

import pytest

from acstor.cluster.ring.decision import Decision
from acstor.policy.collection import Collection, HostLoad
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.pins import Pins
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Speeds, Topology

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "policy-decisions-v1.json"
COLLECTIONS = 240
HOSTS = [f"h{number}" for number in range(9)]
LINK = 125e6
SETTINGS = {
    "headroom": PolicySettings(),
    "quick": PolicySettings(cool_down=0, quiet_period=2, successive=1, hysteresis=0.05),
    "bounded": PolicySettings(moved_share_max=0.02),
    "equation1": PolicySettings.immediate(weights="equation1"),
    "forecast": PolicySettings(forecast="holt", quiet_period=3),
    "threshold": PolicySettings(thresholds="algorithm2", threshold_max=6, switch_overload=0.3),
}
TOPOLOGY = Topology(
    levels=(Speeds(LINK, LINK), Speeds(4 * LINK, 4 * LINK), Speeds(None, 8 * LINK)),
    names=("edge", "aggregate", "core"),
    hosts={name: (f"p{n // 4}", f"r{n // 2}") for n, name in enumerate(HOSTS)},
)


def collections(chance: random.Random) -> list[tuple[Collection, Pins]]:
    """Return loads that come and go, hosts that fall silent, and an operator."""
    found = []
    busy: dict[str, float] = {}
    pins = Pins()
    for number in range(COLLECTIONS):
        if chance.random() < 0.15:
            busy = {name: chance.uniform(0.5, 1.0) for name in chance.sample(HOSTS, 2)}
        if chance.random() < 0.08:
            busy = {}
        if chance.random() < 0.05:
            pinned = {chance.choice(HOSTS): chance.randint(1, 30_000)}
            pins = chance.choice(
                [
                    Pins(),
                    Pins(pinned),
                    Pins(is_frozen=True),
                    Pins({}, True, chance.choice([4, None])),
                ]
            )
        hosts, missing = {}, {}
        is_dark = chance.random() < 0.04
        for name in HOSTS:
            if chance.random() < (0.7 if is_dark else 0.03):
                missing[name] = chance.choice(["silent", "silent", "draining", "down"])
                continue
            own = busy.get(name, 0.0) * chance.uniform(0.9, 1.0)
            moved = chance.uniform(0.0, 0.4)
            hosts[name] = HostLoad(
                LINK * own / 2, LINK * own, LINK * moved, LINK * moved / 2, LINK,
                chance.choice([None, 0.5]), chance.choice([0, 0, 0, 1]),
            )  # fmt: skip
        if chance.random() < 0.01:
            hosts, missing = {}, {}
        found.append((Collection(number * 10.0, hosts, missing), pins))
    return found


def decided(settings: PolicySettings) -> dict[str, Any]:
    """Return what becomes of the collections, with every decision put in force."""
    maker = DecisionMaker(
        settings,
        topology=TOPOLOGY,
        similarity=lambda givers, receivers: tuple(
            (one, other, 0.25) for one in sorted(givers) for other in sorted(receivers)
        ),
    )
    in_force: Decision | None = None
    digest, reasons = hashlib.sha256(), dict[str, int]()
    for collection, pins in collections(random.Random(15)):
        step = maker.decide(collection, in_force, pins)
        reasons[step.reason.value] = reasons.get(step.reason.value, 0) + 1
        in_force = step.decision or in_force
        everything = {
            "decision": step.decision.encode().decode() if step.decision else None,
            "reason": step.reason.value,
            "detail": step.detail,
            "moved": step.moved_share,
            "hosts": {name: why.to_json() for name, why in sorted(step.explanations.items())},
            "remembered": maker.history.to_json(),
        }
        digest.update(json.dumps(everything, sort_keys=True).encode())
    return {"sha256": digest.hexdigest(), "reasons": dict(sorted(reasons.items()))}


@pytest.mark.parametrize("name", SETTINGS)
def test_decisions_are_those_that_were_recorded(name: str) -> None:
    assert decided(SETTINGS[name]) == json.loads(GOLDEN.read_text())[name]


def test_every_reason_was_recorded() -> None:
    recorded = json.loads(GOLDEN.read_text()).values()
    found = {reason for one in recorded for reason in one["reasons"]}
    assert found == {
        "overload", "continued", "calm", "pinned", "threshold", "empty", "blind", "frozen",
        "not-overloaded", "waiting", "cooling-down", "relieved",
    }  # fmt: skip
