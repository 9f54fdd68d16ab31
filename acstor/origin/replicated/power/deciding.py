"""The decision which member sleeps or wakes next, and the rules that no policy can break.

A policy (entry points ``acstor.policy.replicas``) says which members it would have on. What
operators said counts more; the home, the minimum, and members that cannot be switched stay on; and
at most one member changes at a time, after it has been on or off for a while. Everything here is
pure: the same inputs give the same decision, which is how journals are replayed.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from acstor import exception
from acstor.origin.replicated.power.budgets.base import Unit
from acstor.origin.replicated.power.record import Desired
from acstor.origin.replicated.power.states import PowerEvent, PowerState

POLICIES = "acstor.policy.replicas"
"""Entry points of policies."""
_ASLEEP = frozenset({PowerState.QUIESCING, PowerState.SWITCHING_OFF, PowerState.OFF})
"""States that a member leaves by being woken."""
_COMING = frozenset({PowerState.WAKING, PowerState.CATCHING_UP})
"""States of members that are about to be in use."""


@dataclasses.dataclass(frozen=True, slots=True)
class PowerSettings:
    """Settings of the decision."""

    policy: str = "none"
    """Name of the plug-in."""
    unit: Unit = Unit.WATTS
    members_min: int = 1
    """Members that are always on, the home among them."""
    on_seconds: float = 1800.0
    """Time that a member is on at least before it sleeps for a budget."""
    off_seconds: float = 600.0
    """Time that a member is off at least before it wakes for a budget."""
    margin: float = 0.05
    """Part of a budget that is to be left before one more member wakes."""


@dataclasses.dataclass(frozen=True, slots=True)
class MemberInput:
    """One member as it is decided on."""

    name: str
    state: PowerState
    seconds: float
    """Time since the state changed; one that never did: as long as may be."""
    watts: float = 0.0
    is_home: bool = False
    is_switchable: bool = False
    """True if its machine has a driver, and it is a member in use that does not join or drain."""
    is_reachable: bool = True
    desired: Desired | None = None
    has_alarm: bool = False
    is_written: bool = False
    """True if volumes write to it: what is decided there, no other member can decide."""

    @property
    def is_on(self) -> bool:
        """True if it is on, or about to be."""
        return self.state not in _ASLEEP


@dataclasses.dataclass(frozen=True, slots=True)
class PowerInputs:
    """All that a decision is made from."""

    settings: PowerSettings
    members: tuple[MemberInput, ...]
    budget: float | None
    """None: unknown, or there is none."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Any) -> "PowerInputs":
        """Return what :meth:`to_json` returned; unknown fields are ignored.

        :raises InvalidError: when it is something else.
        """
        try:
            settings = _known(PowerSettings, fields["settings"])
            members = [_known(MemberInput, one) for one in fields["members"]]
            for one in members:
                one["state"] = PowerState(one["state"])
                one["desired"] = None if one["desired"] is None else Desired(one["desired"])
            settings["unit"] = Unit(settings["unit"])
            return cls(
                PowerSettings(**settings),
                tuple(MemberInput(**one) for one in members),
                fields["budget"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise exception.InvalidError(f"malformed inputs: {error!r:.100}") from error


class Why(enum.StrEnum):
    """Reason for which a member shall be on or off."""

    HOME = "home"
    NOT_SWITCHABLE = "not-switchable"
    """It has no driver, or joins, drains or is away."""
    WRITTEN = "volumes"
    """Volumes write to it."""
    OPERATOR = "operator"
    ALARM = "alarm"
    """Switching it failed before; an operator has to say that it may be tried again."""
    MINIMUM = "minimum"
    UNKNOWN = "unknown-budget"
    POLICY = "policy"


_AT_ONCE = frozenset({Why.OPERATOR, Why.NOT_SWITCHABLE, Why.HOME, Why.MINIMUM, Why.WRITTEN})
"""Reasons that wait for no time to be over."""


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """Reasons for what shall become of one member."""

    is_on: bool
    why: Why
    waits_for: str = ""
    """Reason for which it is not so yet and nothing is done now; empty: it is, or is done."""


@dataclasses.dataclass(frozen=True, slots=True)
class PowerDecision:
    """Outcome of one decision."""

    change: tuple[str, PowerEvent] | None
    """The member that changes now, and the event; None: none does."""
    reason: str
    """For people."""
    members: Mapping[str, Explanation]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "change": None if self.change is None else list(self.change),
            "reason": self.reason,
            "members": {name: dataclasses.asdict(one) for name, one in self.members.items()},
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Choice of a policy, by rules of its own only."""

    on: frozenset[str]
    """Members that it would have on."""
    detail: str
    """Reason, for people."""


class ReplicaPolicy(Protocol):
    """Says which members should be on. It must depend on the inputs only."""

    def choose(self, inputs: PowerInputs, fixed: Mapping[str, bool]) -> Choice:
        """Return its choice.

        :param fixed: members of which is decided already, and whether they are on.
        """


def load_policy(name: str) -> ReplicaPolicy:
    """Return the policy of a name.

    :raises UnsupportedError: when there is none.
    """
    import stevedore.driver
    import stevedore.exception
    import stevedore.extension

    try:
        made: ReplicaPolicy = stevedore.driver.DriverManager(POLICIES, name).driver()
    except stevedore.exception.NoMatches as error:
        known = sorted(stevedore.extension.ExtensionManager(POLICIES).names())
        raise exception.UnsupportedError(
            f"there is no {name!r} in {POLICIES}",
            hint=f"choose one of {', '.join(known)}, or install the package that provides it",
        ) from error
    return made


def decide(inputs: PowerInputs, policy: ReplicaPolicy) -> PowerDecision:
    """Return what changes now, and why each member shall be on or off."""
    targets = {one.name: found for one in inputs.members if (found := _fixed(one)) is not None}
    choice = policy.choose(inputs, {name: one.is_on for name, one in targets.items()})
    is_blind = inputs.settings.policy != "none" and inputs.budget is None
    for one in inputs.members:
        why = Why.UNKNOWN if is_blind else Why.POLICY
        is_on = is_blind or one.name in choice.on
        targets.setdefault(one.name, Explanation(is_on, why))
    _keep_minimum(inputs, targets)
    change = _change(inputs, targets)
    reason = "the budget is unknown, so all are to be on" if is_blind else choice.detail
    return PowerDecision(change, reason, targets)


def _fixed(one: MemberInput) -> Explanation | None:
    """Return what is decided of a member before any policy is asked; None: nothing."""
    if one.is_home:
        return Explanation(True, Why.HOME)
    if not one.is_switchable:
        return Explanation(True, Why.NOT_SWITCHABLE)
    if one.is_written:
        return Explanation(True, Why.WRITTEN)
    if one.has_alarm or one.state is PowerState.STUCK:
        return Explanation(True, Why.ALARM)  # what an operator says anew clears it
    if one.desired is not None:
        return Explanation(one.desired is Desired.AWAKE, Why.OPERATOR)
    return None


def _keep_minimum(inputs: PowerInputs, targets: dict[str, Explanation]) -> None:
    """Have as many be on as always are, rather those that are. One that is away does not count."""
    order = sorted(inputs.members, key=lambda one: (one.state in _ASLEEP, one.name))
    for one in order:
        on = [other for other in inputs.members if other.is_reachable and targets[other.name].is_on]
        if len(on) >= inputs.settings.members_min:
            return
        if not targets[one.name].is_on:
            targets[one.name] = Explanation(True, Why.MINIMUM)


def _change(inputs: PowerInputs, targets: dict[str, Explanation]) -> tuple[str, PowerEvent] | None:
    """Return the change that is made now; note what the others wait for."""
    change: tuple[str, PowerEvent] | None = None
    for one in _order(inputs.members):
        target = targets[one.name]
        if target.is_on:
            event, is_due = PowerEvent.WAKE, one.state in _ASLEEP
        else:
            event, is_due = PowerEvent.SLEEP, one.state is PowerState.ACTIVE
        if not is_due:
            continue
        waits_for = _obstacle(inputs, one, target) if change is None else "another member changes"
        if not waits_for:
            change = (one.name, event)
        targets[one.name] = dataclasses.replace(target, waits_for=waits_for)
    return change


def _order(members: Sequence[MemberInput]) -> list[MemberInput]:
    """Return the members as they are looked at: operators' first, those that wake before others."""
    return sorted(
        members,
        key=lambda one: (one.desired is None, one.state not in _ASLEEP, one.name),
    )


def _obstacle(inputs: PowerInputs, one: MemberInput, target: Explanation) -> str:
    """Return what keeps a member from changing now; empty: nothing."""
    settings = inputs.settings
    is_asked_for = target.why in _AT_ONCE
    if target.is_on:
        is_early = one.state is PowerState.OFF and one.seconds < settings.off_seconds
        return f"off for {settings.off_seconds:g} s" if is_early and not is_asked_for else ""
    if not one.is_reachable:
        return "it does not answer"
    others = [other for other in inputs.members if other.name != one.name]
    if any(other.state in _COMING or other.state in _ASLEEP - {PowerState.OFF} for other in others):
        return "another member changes"
    ready = [other for other in others if other.state is PowerState.ACTIVE and other.is_reachable]
    if len(ready) < settings.members_min:
        return f"{settings.members_min} members in use besides it"
    if one.seconds < settings.on_seconds and not is_asked_for:
        return f"on for {settings.on_seconds:g} s"
    return ""


def _known(kind: type, fields: Any) -> dict[str, Any]:
    """Return the fields that a class has, for journals of other releases."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in fields.items() if name in names}
