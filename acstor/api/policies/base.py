"""Personas of OpenStack, and how a rule is written.

Source: Nova, ``nova/policies/base.py``, and the community goal of consistent secure policies. A
manager is a member who is trusted with what makes protection weaker.
"""

from collections.abc import Mapping

from oslo_policy import policy

ADMIN = "acstor:admin"
"""Base rule of administrators: they see all projects."""
_READER = "acstor:project_reader"
_MEMBER = "acstor:project_member"
_MANAGER = "acstor:project_manager"

READER = f"rule:{_READER}"
MEMBER = f"rule:{_MEMBER}"
MANAGER = f"rule:{_MANAGER}"
ADMINISTRATOR = f"rule:{ADMIN}"

ROLES: Mapping[str, str] = {
    READER: "reader",
    MEMBER: "member",
    MANAGER: "manager",
    ADMINISTRATOR: "admin",
}
"""Role of each persona; Keystone's roles imply those before them."""


def _of_project(role: str) -> str:
    return f"(role:{role} and project_id:%(project_id)s) or rule:{ADMIN}"


RULES: tuple[policy.RuleDefault, ...] = (
    policy.RuleDefault(ADMIN, "role:admin", "Administrator of the cloud.", scope_types=["project"]),
    policy.RuleDefault(
        _READER, _of_project("reader"), "Reader of a project.", scope_types=["project"]
    ),
    policy.RuleDefault(
        _MEMBER, _of_project("member"), "Member of a project.", scope_types=["project"]
    ),
    policy.RuleDefault(
        _MANAGER, _of_project("manager"), "Manager of a project.", scope_types=["project"]
    ),
)
"""Rules that others refer to."""


def rule(name: str, check: str, description: str, *operations: str) -> policy.DocumentedRuleDefault:
    """Return a rule.

    :param name: without the service: ``versions:list``.
    :param check: persona that it is for.
    :param operations: method and path of each, ``GET /v1/versions``.
    """
    documented = [
        policy.Operation(method=method, path=path)
        for method, _, path in (operation.partition(" ") for operation in operations)
    ]
    return policy.DocumentedRuleDefault(
        name=f"acstor:{name}",
        check_str=check,
        description=description,
        operations=documented,
        scope_types=["project"],
    )
