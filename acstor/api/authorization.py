"""Authorization: which role may do what, by oslo.policy.

Only tokens of projects are taken, as by Nova, Glance and Placement: an administrator is who has the
role admin in any project. What belongs to another project is not found, whatever the role.
"""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from acstor.api import policies
from acstor.api.caller import Caller
from acstor.api.errors import ForbiddenError
from acstor.api.policies import base


class Authorizer:
    """Rules of a deployment.

    :param enforcer: with all rules of :mod:`acstor.api.policies`.
    """

    def __init__(self, enforcer: policy.Enforcer) -> None:
        """Keep the rules."""
        self._enforcer = enforcer

    @classmethod
    def open(cls, conf: cfg.ConfigOpts) -> "Authorizer":
        """Return the rules of a configuration, and of its policy file."""
        return cls(enforcer_of(conf))

    def require(self, caller: Caller, rule: str) -> None:
        """Refuse a caller who has not the role that a rule asks for.

        :raises ForbiddenError: saying what is asked for.
        """
        if not self.allows(caller, rule):
            raise ForbiddenError(
                f"{rule} is not allowed to you in project {caller.project}",
                hint=f"it needs the role {policies.role_of(rule)}, unless the cloud says otherwise",
            )

    def allows(self, caller: Caller, rule: str) -> bool:
        """Return whether a rule lets a caller do something in the own project."""
        target: Mapping[str, Any] = {"project_id": caller.project, "user_id": caller.user}
        return bool(self._enforcer.authorize(rule, target, caller.context))

    def is_admin(self, caller: Caller) -> bool:
        """Return whether a caller may see the things of other projects."""
        return self.allows(caller, base.ADMIN)


def enforcer_of(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return oslo.policy's enforcer with all rules."""
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(policies.list_rules())
    return enforcer


def get_enforcer() -> policy.Enforcer:
    """Return the enforcer for oslopolicy-list-redundant and its like (entry point)."""
    conf = cfg.ConfigOpts()
    conf([], project="acstor")
    return enforcer_of(conf)
