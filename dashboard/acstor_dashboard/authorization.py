"""Rules of the API, asked by the dashboard before it shows what a user may not do.

Horizon allows everything of a service whose policy it has not loaded, and a rule that a policy
lacks where that has no default. Both are refused here: the packaged rules have one that nobody
passes, and where a user passes it, they are not in force.
"""

import pathlib
from collections.abc import Iterable, MutableMapping
from typing import Any

from django import http
from horizon import exceptions
from openstack_dashboard import policy

SCOPE = "acstor"
"""Name of the service in Horizon's settings of policies."""
NOBODY = f"{SCOPE}:nobody"
"""Rule of the packaged policy that nobody passes."""
CONF = pathlib.Path(__file__).parent / "conf"
POLICY_FILE = CONF / "acstor_policy.yaml"
"""Rules of the deployment; the packaged one changes nothing."""
DEFAULT_POLICY_FILE = CONF / "default_policies" / "acstor.yaml"
"""Rules of the API as they are where a deployment changes none."""


def register(settings: Any) -> None:
    """Have Horizon load the rules, unless its settings name files already."""
    _register(settings.POLICY_FILES, POLICY_FILE)
    _register(settings.DEFAULT_POLICY_FILES, DEFAULT_POLICY_FILE)


def _register(files: MutableMapping[str, str], path: pathlib.Path) -> None:
    files.setdefault(SCOPE, str(path))


def may(request: http.HttpRequest, *rules: str, project_id: str | None = None) -> bool:
    """Return whether the user passes rules such as ``versions:delete``.

    :param project_id: of the thing; None: the user's present one.
    """
    known = request.__dict__.setdefault("_acstor_rights", {})
    key = (rules, project_id)
    if key not in known:
        known[key] = not _passes(request, [NOBODY], None) and _passes(
            request, [f"{SCOPE}:{rule}" for rule in rules], project_id
        )
    return bool(known[key])


def require(request: http.HttpRequest, rules: Iterable[str]) -> None:
    """Refuse a page.

    :raises NotAuthorized: when the user does not pass the rules; Horizon answers 403.
    """
    if not may(request, *rules):
        raise exceptions.NotAuthorized


def _passes(request: http.HttpRequest, rules: Iterable[str], project_id: str | None) -> bool:
    target = {} if project_id is None else {"project_id": project_id}
    return bool(policy.check(tuple((SCOPE, rule) for rule in rules), request, target))
