"""Rules that the dashboard asks: those of the API, and none of them where they are missing."""

import pathlib
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.test import RequestFactory
from horizon import exceptions
from oslo_policy import policy as oslo_policy

from acstor.api import policies
from acstor_dashboard import authorization
from tests.unit.dashboard.site import Site
from tests.unit.dashboard.trusting_api import ROLES


def request_of(site: Site) -> Any:
    """Return a request of the site's user."""
    request = RequestFactory().get("/")
    request.user = site.user(request)
    return request


def packaged_rules() -> list[dict[str, Any]]:
    """Return the rules as the plug-in brings them."""
    return list(yaml.safe_load(authorization.DEFAULT_POLICY_FILE.read_text()))


def test_packaged_rules_are_those_of_the_api() -> None:
    own = {"default", authorization.NOBODY}
    packaged = {rule["name"]: rule for rule in packaged_rules() if rule["name"] not in own}
    rules = policies.list_rules()
    assert list(packaged) == [rule.name for rule in rules]
    for rule in rules:
        shown = packaged[rule.name]
        assert shown["check_str"] == rule.check_str
        assert shown["description"] == rule.description
        assert shown["scope_types"] == rule.scope_types
        if isinstance(rule, oslo_policy.DocumentedRuleDefault):
            assert shown["operations"] == list(rule.operations)


def test_rules_that_are_missing_or_nobodys_are_refused_to_all() -> None:
    found = {rule["name"]: rule["check_str"] for rule in packaged_rules()}
    assert (found["default"], found[authorization.NOBODY]) == ("!", "!")


def test_horizon_is_told_of_the_files() -> None:
    assert settings.POLICY_FILES["acstor"] == str(authorization.POLICY_FILE)
    assert settings.DEFAULT_POLICY_FILES["acstor"] == str(authorization.DEFAULT_POLICY_FILE)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("nobody", ()),
        ("reader", ("versions:list",)),
        ("member", ("versions:list", "versions:delete")),
        ("manager", ("versions:list", "versions:delete", "versions:unlock")),
        ("admin", ("versions:list", "versions:delete", "versions:unlock", "cluster:show")),
    ],
)
def test_each_role_may_what_the_api_lets_it(
    site: Site, role: str, expected: tuple[str, ...]
) -> None:
    site.api.role = role
    request = request_of(site)
    asked = ("versions:list", "versions:delete", "versions:unlock", "cluster:show")
    assert tuple(rule for rule in asked if authorization.may(request, rule)) == expected
    assert authorization.may(request, *asked) == (expected == asked)
    assert ROLES[role]


def test_things_of_other_projects_are_refused(site: Site) -> None:
    request = request_of(site)
    assert authorization.may(request, "versions:delete", project_id=site.setting.project)
    assert not authorization.may(request, "versions:delete", project_id="another")


def forget(site: Site, monkeypatch: pytest.MonkeyPatch, **files: dict[str, str]) -> Any:
    """Return an administrator's request where the settings name other files."""
    for name, value in files.items():
        monkeypatch.setattr(settings, name, value)
    site.api.role = "admin"
    return request_of(site)


def test_nothing_is_allowed_without_a_policy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    request = forget(site, monkeypatch, POLICY_FILES={}, DEFAULT_POLICY_FILES={})
    assert not authorization.may(request, "versions:list")
    with pytest.raises(exceptions.NotAuthorized):
        authorization.require(request, ["versions:list"])


@pytest.mark.parametrize("content", [None, "", "[", '"acstor:versions:list": "@"'])
def test_nothing_is_allowed_where_the_rules_of_the_api_are_missing(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, content: str | None
) -> None:
    path = tmp_path / "acstor_policy.yaml"
    if content is not None:
        path.write_text(content)
    gone = {"acstor": str(tmp_path / "gone.yaml")}
    request = forget(
        site, monkeypatch, POLICY_FILES={"acstor": str(path)}, DEFAULT_POLICY_FILES=gone
    )
    assert not authorization.may(request, "versions:list")


def test_rules_of_the_api_hold_where_the_deployments_file_is_missing(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    gone = {"acstor": str(tmp_path / "gone.yaml")}
    request = forget(site, monkeypatch, POLICY_FILES=gone)
    assert authorization.may(request, "versions:unlock")
    assert not authorization.may(request, "versions:unheard_of")


def test_rules_of_the_deployment_come_first(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "acstor_policy.yaml"
    path.write_text('"acstor:versions:delete": "rule:acstor:project_manager"\n')
    monkeypatch.setattr(settings, "POLICY_FILES", {"acstor": str(path)})
    assert not authorization.may(request_of(site), "versions:delete")
    assert authorization.may(request_of(site), "versions:lock")
