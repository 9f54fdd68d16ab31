"""Evaluation of one collection of loads: one control step, from what is seen to a decision."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from collections.abc import Collection as Names
from dataclasses import dataclass

from acstor.cluster.ring.decision import MEAN_WEIGHT, SIMILARITY_MAX, WEIGHT_MAX, Decision
from acstor.policy.collection import Collection, HostLoad
from acstor.policy.evaluation_result import EvaluationResult, Explanation, Part, Reason
from acstor.policy.forecasts.base import Forecast
from acstor.policy.load_history import LoadHistory
from acstor.policy.observation import forgetful, observe
from acstor.policy.pins import Pins
from acstor.policy.proportions import Step, fitted, moved_share, skew, step_towards
from acstor.policy.settings import PolicySettings
from acstor.policy.thresholds.base import ThresholdPolicy
from acstor.policy.topology import Topology
from acstor.policy.weights.base import WeightPolicy

Pairs = tuple[tuple[str, str, float], ...]
Similarity = Callable[[Names[str], Names[str]], Pairs]
"""Takes the hosts that give and those that receive; returns (giver, receiver, share), the most
similar first."""

SKEW_MARGIN = 0.05
"""Part of the circle by which going back must lessen the skew to be worth the misses."""
MOVED_SHARE_MIN = 1e-5
"""Part of the circle below which a change of weights is none."""
HYSTERESIS_LEVEL_MAX = 2
"""Changes that add to the hysteresis."""
_UNIT = 1 / MEAN_WEIGHT


@dataclass(frozen=True)
class Rules:
    """Settings and plug-ins that decide beside the loads."""

    settings: PolicySettings
    weights: WeightPolicy
    thresholds: ThresholdPolicy
    forecast: Forecast
    topology: Topology | None = None
    """None: not declared."""
    similarity: Similarity | None = None
    """Between whom v-nodes should move; None: between any."""


class Evaluation:
    """Decides on one collection; used once.

    :param history: what the evaluations before have left.
    :param previous: the decision in force.
    """

    def __init__(
        self,
        rules: Rules,
        history: LoadHistory,
        collection: Collection,
        previous: Decision | None,
        pins: Pins,
    ) -> None:
        self._rules = rules
        self._settings = rules.settings
        self._history = history
        self._collection = collection
        self._previous = previous
        self._pins = pins
        known = sorted(collection.hosts.keys() | collection.missing.keys())
        self._in_force = {
            name: (previous.weight_of(name) if previous else MEAN_WEIGHT) / MEAN_WEIGHT
            for name in known
        }
        self._pinned = {
            name: pins.weights[name] / MEAN_WEIGHT for name in known if name in pins.weights
        }
        self._free = [
            name for name in known if name in collection.hosts and name not in self._pinned
        ]

    def result(self) -> EvaluationResult:
        """Return what becomes of the collection."""
        collection, history = self._collection, self._history
        silent = sum(why == "silent" for why in collection.missing.values())
        if silent > (len(collection.hosts) + len(collection.missing)) * 0.5:
            detail = f"{silent} of {len(self._in_force)} hosts are silent"
            return self._blind(Reason.BLIND, detail, forgetful(history))
        if not collection.hosts:
            return self._blind(Reason.EMPTY, "no host tells anything", forgetful(history))
        self._seen = observe(collection, history, self._settings, self._rules.forecast)
        self._base = self._rescaled()
        self._target = self._targets(self._settings.successive)
        reason, detail, step = self._choose()
        weights = dict(self._in_force)
        if step is not None:
            weights |= step.weights
            weights |= self._pinned
        threshold, history = self._threshold(self._seen.history)
        return self._made(reason, detail, step, weights, threshold, history)

    def _blind(self, reason: Reason, detail: str, history: LoadHistory) -> EvaluationResult:
        """Return what becomes of a collection that shows too little: pins only."""
        weights = self._in_force | self._pinned
        share = moved_share(self._in_force, weights)
        if share < MOVED_SHARE_MIN:
            return EvaluationResult(None, reason, detail, history)
        history = dataclasses.replace(history, pinned=history.pinned | self._pinned.keys())
        detail = f"pinned: {_some(self._pinned)}; {detail}"
        threshold = self._previous.threshold if self._previous else None
        decision = self._decision(Reason.PINNED, detail, _whole(weights), threshold)
        return EvaluationResult(decision, Reason.PINNED, detail, history, share)

    # Weights

    def _rescaled(self) -> dict[str, float]:
        """Return the weights in force of the free hosts, in ordinary hosts' again.

        Hosts that came and went shift the mean; shares do not change by this. While some host is
        missing, the sum stays, so that its share stays.
        """
        in_force = {name: max(_UNIT, self._in_force[name]) for name in self._free}
        total = math.fsum(in_force.values())
        if self._collection.missing or not total:
            return in_force
        return {name: weight * len(in_force) / total for name, weight in in_force.items()}

    def _targets(self, count: int) -> dict[str, float]:
        loads = self._loads(count)
        free = {name: loads[name] for name in self._free}
        return fitted(
            self._rules.weights.weigh(free),
            math.fsum(self._base.values()),
            self._settings.weight_floor,
            self._settings.weight_ceiling,
        )

    def _loads(self, count: int) -> Mapping[str, HostLoad]:
        """Return what is decided with: a forecast, or the mean of the last collections."""
        if self._settings.forecast != "none":
            return self._seen.loads
        return self._seen.averaged(count)

    def _choose(self) -> tuple[Reason, str, Step | None]:
        """Return whether weights change, and why or why not."""
        history = self._history
        repinned = self._repinned(history.pinned)
        if repinned is not None:
            return repinned
        if self._pins.is_frozen:
            return Reason.FROZEN, "frozen by the operator", None
        if history.cool_down > 0:
            return Reason.COOLING_DOWN, f"{history.cool_down} collections to wait", None
        sustained = self._sustained()
        if sustained:
            return self._relieve(sustained)
        if self._seen.overloaded:
            detail = f"{len(self._seen.overloaded)} hosts are overloaded, none for long enough"
            return Reason.WAITING, detail, None
        if self._seen.history.quiet_streak >= self._settings.quiet_period:
            return self._return()
        return Reason.NOT_OVERLOADED, "no host is overloaded", None

    def _sustained(self) -> set[str]:
        """Return the hosts that have been overloaded for long enough, and still are."""
        hosts = self._seen.history.hosts
        return {
            name
            for name in self._free
            if name in self._seen.overloaded
            and self._collection.hosts[name].age == 0
            and hosts[name].streak >= self._settings.successive
        }

    def _relieve(self, sustained: set[str]) -> tuple[Reason, str, Step | None]:
        changes = min(self._history.hysteresis_level, HYSTERESIS_LEVEL_MAX)
        hysteresis = min(0.9, self._settings.hysteresis * (1 + changes))
        due = {
            name
            for name in sustained
            if self._base[name] - self._target[name] >= max(hysteresis, 2 * _UNIT)
            and self._base[name] * (1 - hysteresis) > self._target[name]
        }
        if due:
            return (
                Reason.OVERLOAD,
                f"{len(due)} hosts are overloaded: {_some(due)}",
                self._step(sustained, self._seen.busy & self._base.keys()),
            )
        if self._history.is_unfinished:
            detail = f"{len(sustained)} hosts still are overloaded: {_some(sustained)}"
            return (
                Reason.CONTINUED,
                detail,
                self._step(sustained, self._seen.busy & self._base.keys()),
            )
        detail = f"{len(sustained)} overloaded hosts have about the weights they should have"
        return Reason.RELIEVED, detail, None

    def _return(self) -> tuple[Reason, str, Step | None]:
        self._target = self._targets(self._settings.quiet_period)
        gain = skew(self._base) - skew(self._target)
        if gain < max(SKEW_MARGIN, 2 * _UNIT):
            return Reason.NOT_OVERLOADED, "no host is overloaded", None
        detail = f"no host was busy in {self._seen.history.quiet_streak} collections"
        return Reason.QUIET, detail, self._step(self._base.keys())

    def _repinned(self, former: frozenset[str]) -> tuple[Reason, str, Step] | None:
        """Return the step that pins and unpins ask for: at once, and as large as it has to be."""
        changed = [
            name
            for name, weight in self._pinned.items()
            if abs(self._in_force[name] - weight) >= _UNIT
        ]
        freed = sorted(former.intersection(self._free) - self._pinned.keys())
        if not changed and not freed:
            return None
        detail = f"pinned: {_some(changed) or 'none'}; unpinned: {_some(freed) or 'none'}"
        return Reason.PINNED, detail, Step(self._base | {n: self._target[n] for n in freed}, False)

    def _step(self, *urgent: Names[str]) -> Step:
        everything = math.fsum(self._in_force.values())
        return step_towards(
            self._base,
            self._target,
            urgent=urgent,
            dead_band=self._settings.hysteresis,
            amount_max=self._settings.moved_share_max * everything,
        )

    # Threshold

    def _threshold(self, history: LoadHistory) -> tuple[int | None, LoadHistory]:
        """Return the threshold, and the history with what was asked for."""
        in_force = self._previous.threshold if self._previous else None
        if self._pins.is_threshold_pinned:
            return self._pins.threshold, history
        wanted = self._wanted_threshold(in_force)
        streak = history.candidate_streak + 1 if wanted == history.candidate else 1
        history = dataclasses.replace(history, candidate=wanted, candidate_streak=streak)
        is_due = streak >= self._settings.successive and not self._pins.is_frozen
        return wanted if is_due else in_force, history

    def _wanted_threshold(self, in_force: int | None) -> int | None:
        """Return the threshold that the policy asks for: at most the plain one.

        Overload of switches is a reason to ask fewer hosts than without, never more.
        """
        loads = self._loads(self._settings.successive)
        chosen = self._rules.thresholds.choose(loads, self._rules.topology, in_force)
        most = self._settings.threshold_max
        if chosen is None or most is None:
            return most if chosen is None else chosen
        return min(chosen, most)

    # The result

    def _made(
        self,
        reason: Reason,
        detail: str,
        step: Step | None,
        weights: Mapping[str, float],
        threshold: int | None,
        history: LoadHistory,
    ) -> EvaluationResult:
        previous = self._previous
        whole = _whole(weights)
        before = previous.weights if previous else {}
        share = moved_share(self._in_force, weights)
        is_moved = step is not None and share >= MOVED_SHARE_MIN
        is_new_threshold = threshold != (previous.threshold if previous else None)
        if is_new_threshold and not is_moved:
            detail = f"threshold {threshold}; weights: {reason.value}, {detail}"
            reason = Reason.THRESHOLD
        elif reason.is_change and not is_moved:
            reason, detail = Reason.RELIEVED, "what is asked for is in force"
        hysteresis_level, no_overload_streak = self._hysteresis_level(reason)
        history = dataclasses.replace(
            history,
            pinned=frozenset(self._pinned),
            cool_down=self._cool_down(reason, is_moved),
            hysteresis_level=hysteresis_level,
            no_overload_streak=no_overload_streak,
            is_unfinished=step.is_bounded
            if step
            else history.is_unfinished and bool(self._seen.overloaded),
        )
        decision = None
        if is_moved or is_new_threshold:
            decision = self._decision(reason, detail, whole if is_moved else before, threshold)
        share = share if is_moved else 0.0
        return EvaluationResult(
            decision, reason, detail, history, share, self._explanations(weights)
        )

    def _cool_down(self, reason: Reason, is_moved: bool) -> int:
        if is_moved and reason is not Reason.PINNED:
            return self._settings.cool_down
        return max(0, self._history.cool_down - 1)

    def _hysteresis_level(self, reason: Reason) -> tuple[int, int]:
        history = self._history
        if reason in {Reason.OVERLOAD, Reason.CONTINUED}:
            return min(history.hysteresis_level + 1, HYSTERESIS_LEVEL_MAX), 0
        if reason is Reason.QUIET:
            return 0, 0
        if self._seen.overloaded:
            # Overload that lasts is no reason to try again and again.
            return history.hysteresis_level, 0
        if history.no_overload_streak + 1 >= self._settings.quiet_period:
            return max(0, history.hysteresis_level - 1), 0
        return history.hysteresis_level, history.no_overload_streak + 1

    def _decision(
        self, reason: Reason, detail: str, weights: Mapping[str, int], threshold: int | None
    ) -> Decision:
        previous = self._previous
        change = {
            name: weight / MEAN_WEIGHT - self._in_force[name]
            for name, weight in weights.items()
            if name in self._in_force
        }
        return Decision(
            term=previous.term if previous else 0,
            sequence=previous.sequence + 1 if previous else 1,
            leader=previous.leader if previous else "",
            decided_at_ms=max(0, int(self._collection.at * 1000)),
            policy=self._settings.weights,
            weights=dict(weights),
            threshold=threshold,
            similarity=self._pairs(
                [name for name, more in change.items() if more <= -_UNIT],
                [name for name, more in change.items() if more >= _UNIT],
            ),
            reason=f"{reason.value}: {detail}"[:500],
        )

    def _pairs(self, givers: Names[str], receivers: Names[str]) -> Pairs:
        """Return between whom v-nodes should move."""
        if self._rules.similarity is None or not givers or not receivers:
            return ()
        return self._rules.similarity(givers, receivers)[:SIMILARITY_MAX]

    def _explanations(self, weights: Mapping[str, float]) -> dict[str, Explanation]:
        loads = self._loads(self._settings.successive)
        return {name: self._explained(name, loads, weights[name]) for name in self._in_force}

    def _explained(self, name: str, loads: Mapping[str, HostLoad], decided: float) -> Explanation:
        load, in_force = loads.get(name), self._in_force[name]
        host = self._seen.history.hosts.get(name)
        return Explanation(
            extra_in=load.extra_in if load else None,
            extra_out=load.extra_out if load else None,
            link=load.link if load else None,
            utilisation=self._collection.hosts[name].utilisation if load else None,
            is_overloaded=name in self._seen.overloaded,
            streak=host.streak if host else 0,
            in_force=in_force,
            target=self._pinned.get(name, self._target.get(name, in_force)),
            decided=decided,
            part=self._part(name, decided - in_force),
        )

    def _part(self, name: str, change: float) -> Part:
        if name in self._pinned:
            return Part.PINNED
        if name in self._collection.missing:
            return Part(self._collection.missing[name])
        if abs(change) < _UNIT:
            return Part.KEEPS
        return Part.GIVES if change < 0 else Part.RECEIVES


def _whole(weights: Mapping[str, float]) -> dict[str, int]:
    return {
        name: max(1, min(WEIGHT_MAX, round(weight * MEAN_WEIGHT)))
        for name, weight in weights.items()
    }


def _some(names: Names[str]) -> str:
    """Return the first few names, for people."""
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more
