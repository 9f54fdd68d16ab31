"""Power of the members of an origin, by the configuration."""

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from oslo_config import cfg

from acstor import exception
from acstor.cluster.decision_journal import DecisionLog
from acstor.origin.replicated.members import parse_members
from acstor.origin.replicated.power.budgets.base import BudgetSource, Unit
from acstor.origin.replicated.power.budgets.file import FileBudget
from acstor.origin.replicated.power.budgets.http import HttpAccess, HttpBudget
from acstor.origin.replicated.power.budgets.kept import KeptBudget
from acstor.origin.replicated.power.budgets.prometheus import PrometheusBudget
from acstor.origin.replicated.power.deciding import PowerSettings, ReplicaPolicy, load_policy
from acstor.origin.replicated.power.machines import MachineSettings, load_machines
from acstor.origin.replicated.power.power_keeping import Journal
from acstor.origin.replicated.power.switching import SwitchTimes

BUDGET_ATTEMPTS = 3
"""Attempts of each reading of the budget."""
JOURNAL_FILES = 4
"""Files that are kept of the journal."""
_PROMETHEUS = "prometheus+"


@dataclass(frozen=True)
class PowerParts:
    """All that the power of members needs, beside the members."""

    machines: Mapping[str, MachineSettings]
    settings: PowerSettings
    policy: ReplicaPolicy
    source: BudgetSource | None
    budget_max_age: float
    times: SwitchTimes
    journal: Journal

    def budget(self) -> KeptBudget | None:
        """Return the budget, nothing of which is known yet; None: there is none."""
        if self.source is None:
            return None
        return KeptBudget(self.source, self.budget_max_age, BUDGET_ATTEMPTS)


def power_parts(conf: cfg.ConfigOpts) -> PowerParts:
    """Return what the power of members needs.

    :raises ConfigurationError: when values do not fit together.
    """
    options = conf.power
    machines = load_machines(options.members_file) if options.members_file else {}
    settings = PowerSettings(
        options.policy,
        Unit(options.budget_unit),
        options.members_min,
        options.min_on,
        options.min_off,
        options.margin,
    )
    try:
        policy = load_policy(options.policy)
    except exception.UnsupportedError as error:
        raise exception.ConfigurationError(
            f"[power] policy: {error.message}", hint=error.hint
        ) from error
    source = _source(conf)
    _check(conf, machines, settings, is_limited=source is not None)
    log = DecisionLog(options.journal_path, options.journal_size, JOURNAL_FILES)
    times = SwitchTimes(options.attempts, options.settle_time)
    return PowerParts(machines, settings, policy, source, options.budget_max_age, times, log.append)


def _check(
    conf: cfg.ConfigOpts,
    machines: Mapping[str, MachineSettings],
    settings: PowerSettings,
    *,
    is_limited: bool,
) -> None:
    if settings.policy == "budget" and not is_limited:
        raise exception.ConfigurationError(
            "[power] policy is budget, and there is none", hint="set [power] budget"
        )
    if not (machines and conf.origin.members):
        return
    names = [one.name for one in parse_members(conf.origin.members)]
    unknown = sorted(machines.keys() - set(names))
    if unknown:
        raise exception.ConfigurationError(
            f"{conf.power.members_file} has {unknown[0]}, which is not in [origin] members",
            hint="correct one of the two",
        )
    home = machines.get(names[0])
    if home is not None and home.driver is not None:
        raise exception.ConfigurationError(
            f"{names[0]}, the home, has a driver in {conf.power.members_file}",
            hint="the home is always on: leave its driver out, and keep its watts",
        )
    if is_limited and settings.unit is Unit.WATTS:
        for name in names:
            if name not in machines or machines[name].watts is None:
                raise exception.ConfigurationError(
                    f"{conf.power.members_file} has no watts of {name}",
                    hint="a budget in watts needs those of all members",
                )


def _source(conf: cfg.ConfigOpts) -> BudgetSource | None:
    options = conf.power
    if not options.budget:
        return None
    access = HttpAccess(
        options.budget_timeout, options.budget_ca_file or None, options.budget_token_file or None
    )
    url = options.budget.removeprefix(_PROMETHEUS)
    parts = urllib.parse.urlsplit(url)
    is_prometheus = options.budget.startswith(_PROMETHEUS)
    if parts.scheme == "file" and parts.path and not parts.netloc and not is_prometheus:
        return FileBudget(parts.path, options.budget_timeout)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise exception.ConfigurationError(
            "[power] budget is no URL of a source",
            hint="write file:///path, https://host/path or prometheus+https://host:port",
        )
    if is_prometheus:
        return PrometheusBudget(url, options.budget_query, access)
    return HttpBudget(url, access)
