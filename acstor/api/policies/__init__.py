"""Rules of oslo.policy: one for each operation, a file for each resource."""

import itertools
from types import ModuleType

from oslo_policy import policy

from acstor.api.policies import (
    base,
    cluster,
    exports,
    images,
    preloads,
    project,
    restores,
    schedules,
    tasks,
    versions,
    volumes,
)


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules (entry point ``oslo.policy.policies``)."""
    return list(itertools.chain(base.RULES, *(module.RULES for module in MODULES)))


def role_of(rule: str) -> str:
    """Return the role that a rule asks for unless a policy file says otherwise."""
    checks = {each.name: each.check_str for each in list_rules()}
    return base.ROLES.get(checks.get(rule, ""), "that the policy file asks for")


MODULES: tuple[ModuleType, ...] = (
    versions,
    schedules,
    tasks,
    restores,
    exports,
    project,
    images,
    preloads,
    volumes,
    cluster,
)
"""Modules of the resources."""
