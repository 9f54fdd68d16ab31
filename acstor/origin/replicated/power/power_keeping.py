"""Power of the members in each pass of the process that leads: budget, decision, steps."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members_status import ERROR_LENGTH_MAX, PowerStatus
from acstor.origin.replicated.power.budgets.kept import KeptBudget
from acstor.origin.replicated.power.deciding import (
    MemberInput,
    PowerDecision,
    PowerInputs,
    PowerSettings,
    ReplicaPolicy,
    decide,
)
from acstor.origin.replicated.power.machines import MachineSettings
from acstor.origin.replicated.power.record import PowerRecord
from acstor.origin.replicated.power.states import SETTLED
from acstor.origin.replicated.power.switching import PowerSwitching
from acstor.origin.replicated.states import MemberState
from acstor.origin.replicated.view import MembersView

LOG = logging.getLogger(__name__)

RECORD_KIND = "member-power"
"""Kind of the records of these decisions in a journal."""

Journal = Callable[[Mapping[str, Any], int], None]
"""Stores a record; takes it and its time, milliseconds since the epoch."""


def inputs_of(
    view: MembersView,
    record: PowerRecord,
    machines: Mapping[str, MachineSettings],
    settings: PowerSettings,
    budget: float | None,
    now: float,
    away: Mapping[str, str],
    is_written: Callable[[str], bool] = lambda member: False,
) -> PowerInputs:
    """Return what a decision is made from.

    :param now: seconds since the epoch.
    :param away: members that do not answer.
    :param is_written: says whether volumes write to a member.
    """
    members = []
    for name in view.used:
        entry, machine = record.entry(name), machines.get(name)
        driver = None if machine is None else machine.driver
        members.append(
            MemberInput(
                name,
                entry.state,
                max(0.0, now - entry.since),
                (machine.watts or 0.0) if machine is not None else 0.0,
                name == view.home,
                driver is not None and view.state(name) is MemberState.ACTIVE,
                name not in away,
                entry.desired,
                bool(entry.alarm),
                is_written(name),
            )
        )
    return PowerInputs(settings, tuple(members), budget)


class PowerKeeping:
    """Decides who sleeps, and has it done.

    :param origin: the members.
    :param switching: makes the steps.
    :param machines: what members take of power.
    :param settings: of the decision.
    :param policy: the plug-in that the settings name.
    :param budget: None: there is none.
    :param away: returns the members that do not answer.
    :param is_written: says whether volumes write to a member.
    :param journal: stores decisions.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        origin: ReplicatedOrigin,
        switching: PowerSwitching,
        machines: Mapping[str, MachineSettings],
        settings: PowerSettings,
        policy: ReplicaPolicy,
        budget: KeptBudget | None,
        away: Callable[[], Mapping[str, str]],
        *,
        is_written: Callable[[str], bool] = lambda member: False,
        journal: Journal = lambda record, at_ms: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._origin = origin
        self._switching = switching
        self._machines = machines
        self._settings = settings
        self._policy = policy
        self._budget = budget
        self._away = away
        self._is_written = is_written
        self._journal = journal
        self._now = now
        self._decision: PowerDecision | None = None

    @property
    def is_used(self) -> bool:
        """True if members may sleep, or one has."""
        return bool(self._machines or self._switching.record.members)

    @property
    def is_under_way(self) -> bool:
        """True if a member is between two states: the next pass is due soon."""
        members = self._switching.record.members.values()
        return any(one.state not in SETTLED for one in members)

    def run(self) -> None:
        """Make the steps that are due, and decide who sleeps or wakes next.

        :raises UnavailableError: when the home cannot be reached.
        """
        try:
            self._switching.read()
            if not self.is_used:
                return
            self._switching.run()
            self._decide()
        except exception.ConflictError as error:
            LOG.info("another process switches members: %s", exception.one_line(error))

    def status(self) -> PowerStatus | None:
        """Return what is shown; None: members never sleep."""
        if not self.is_used:
            return None
        reason = self._decision.reason if self._decision is not None else "nothing is decided yet"
        settings = self._settings
        if self._budget is None:
            return PowerStatus(settings.policy, "", settings.unit, None, None, "", reason)
        found = self._budget.reading()
        return PowerStatus(
            settings.policy,
            self._budget.description[:ERROR_LENGTH_MAX],
            settings.unit,
            found.value,
            found.age_seconds,
            found.error[:ERROR_LENGTH_MAX],
            reason[:ERROR_LENGTH_MAX],
        )

    def _decide(self) -> None:
        budget = None if self._budget is None else self._budget.read().value
        inputs = inputs_of(
            self._origin.view,
            self._switching.record,
            self._machines,
            self._settings,
            budget,
            self._now(),
            self._away(),
            self._is_written,
        )
        decision = self._decision = decide(inputs, self._policy)
        if decision.change is None:
            return
        self._note(inputs, decision)
        name, event = decision.change
        self._switching.change(name, event)

    def _note(self, inputs: PowerInputs, decision: PowerDecision) -> None:
        record = {
            "kind": RECORD_KIND,
            "inputs": inputs.to_json(),
            "decision": decision.to_json(),
        }
        try:
            self._journal(record, math.floor(self._now() * 1000))
        except OSError as error:
            LOG.error("the decision who sleeps is in no journal: %s", error.strerror)
