"""The application around the resources: tokens, microversions, errors, documents."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import falcon
import pytest
from falcon import testing
from keystonemiddleware import fixture
from oslo_config import cfg
from oslo_policy import policy

from acstor import exception
from acstor.api import application, microversions
from acstor.api.authorization import Authorizer
from acstor.api.errors import QuotaError, not_found
from acstor.api.operations import BODY_BYTES_MAX, Answer, Call, Gate, operation
from acstor.api.policies import base
from acstor.api.routes import Route
from testbed.fixtures.api_callers import TestCaller, first_error, project_id

RULES = (
    base.rule("things:show", base.READER, "Show a thing.", "GET /v1/things/{thing_id}"),
    base.rule("things:make", base.MEMBER, "Make a thing.", "POST /v1/things/{thing_id}"),
)
THING = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"size": {"type": "integer", "minimum": 1}},
}
QUERY = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "is_big": {"type": "boolean"},
        "at": {"type": "array", "items": {"type": "string"}},
    },
}


class Thing:
    """Resource that fails as it is told."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.error: Exception | None = None
        self.calls: list[Call] = []

    @operation("things:show", "Show a thing", {200: {"type": "object"}}, query=QUERY)
    def on_get(self, call: Call) -> Answer:
        """Note the call."""
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        return Answer({"thing": dict(call.path)})

    @operation("things:make", "Make a thing", {201: THING}, body=THING)
    def on_post(self, call: Call) -> Answer:
        """Answer what was sent."""
        return Answer(dict(call.body), status=201)


class Setting:
    """Application with one resource."""

    def __init__(self, folder: pathlib.Path) -> None:
        file = folder / "acstor.conf"
        file.write_text("[keystone_authtoken]\nwww_authenticate_uri = http://keystone.example\n")
        self.conf = cfg.ConfigOpts()
        self.conf(["--config-file", str(file)], project="acstor")
        enforcer = policy.Enforcer(self.conf)
        enforcer.register_defaults([*base.RULES, *RULES])
        self.thing = Thing(Gate(Authorizer(enforcer), checks_answers=True))
        self.table = [Route("/things/{thing_id:uuid}", self.thing)]
        self.inner = application.resources_application(self.table)
        self.caller = TestCaller(self.inner, project_id())


ID = "0b6a1c5e-4f2d-4c39-8d17-9e3f5a7b2c10"
PATH = f"/v1/things/{ID}"


@pytest.fixture
def setting(tmp_path: pathlib.Path) -> Setting:
    """Return an application."""
    return Setting(tmp_path)


def test_a_call_has_path_query_and_caller(setting: Setting) -> None:
    answer = setting.caller.get(f"{PATH}?size=3&is_big=true&at=gt:1&at=lt:9")
    assert answer.status_code == 200
    (call,) = setting.thing.calls
    assert call.path == {"thing_id": ID}
    assert call.query == {"size": 3, "is_big": True, "at": ["gt:1", "lt:9"]}
    assert call.scope == call.caller.project == setting.caller.project
    assert not call.is_admin


def test_an_administrator_is_bound_to_no_project(setting: Setting) -> None:
    setting.caller.as_role("admin").get(PATH)
    assert setting.thing.calls[0].scope is None


@pytest.mark.parametrize("query", ["size=0", "size=x", "other=1", "is_big=2", "size=1&size=2"])
def test_query_that_makes_no_sense_is_refused(setting: Setting, query: str) -> None:
    answer = setting.caller.get(f"{PATH}?{query}")
    assert answer.status_code == 400
    assert first_error(answer)["code"] == "acstor.query.invalid"
    assert not setting.thing.calls


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "acstor.body.malformed"),
        (b"{", "acstor.body.malformed"),
        (b"[]", "acstor.body.invalid"),
        (b'{"size": 0}', "acstor.body.invalid"),
        (b'{"other": 1}', "acstor.body.invalid"),
        (b" " * (BODY_BYTES_MAX + 1), "acstor.body.too_large"),
    ],
)
def test_body_that_makes_no_sense_is_refused(setting: Setting, body: bytes, code: str) -> None:
    answer = testing.simulate_post(setting.inner, PATH, headers=setting.caller.headers, body=body)
    assert answer.status_code == (413 if code.endswith("too_large") else 400)
    assert first_error(answer)["code"] == code


def test_body_is_taken(setting: Setting) -> None:
    answer = setting.caller.ask("POST", PATH, {"size": 4})
    assert (answer.status_code, answer.json) == (201, {"size": 4})


def test_missing_role_is_told(setting: Setting) -> None:
    answer = setting.caller.as_role("reader").ask("POST", PATH, {"size": 4})
    assert answer.status_code == 403
    assert first_error(answer)["code"] == "acstor.forbidden"


@pytest.mark.parametrize("role", ["reader", "admin"])
@pytest.mark.parametrize("is_of_system", [True, False])
def test_tokens_of_system_and_domain_are_refused(
    setting: Setting, role: str, is_of_system: bool
) -> None:
    answer = TestCaller(setting.inner, None, role, is_of_system).get(PATH)
    assert answer.status_code == 403
    assert first_error(answer)["code"] == "acstor.forbidden.scope"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (not_found("version", ID), 404, "acstor.version.not_found"),
        (exception.InvalidError("no"), 400, "acstor.invalid"),
        (exception.UnsupportedError("no"), 400, "acstor.unsupported"),
        (exception.ConflictError("no"), 409, "acstor.fenced"),
        (exception.ExhaustedError("no"), 507, "acstor.exhausted"),
        (QuotaError("no", code="acstor.quota.versions"), 403, "acstor.quota.versions"),
        (exception.OverloadedError("no"), 503, "acstor.overloaded"),
        (exception.UnavailableError("no"), 503, "acstor.unavailable"),
        (exception.CorruptError("no"), 502, "acstor.corrupt"),
        (exception.InternalError("secret"), 500, "acstor.internal"),
        (RuntimeError("secret"), 500, "acstor.internal"),
    ],
)
def test_error_has_status_code_and_hint(
    setting: Setting, error: Exception, status: int, code: str
) -> None:
    setting.thing.error = error
    answer = setting.caller.get(PATH)
    found = first_error(answer)
    assert (answer.status_code, found["status"], found["code"]) == (status, status, code)
    assert found["hint"]
    assert found["title"]
    assert found["request_id"] == "req-11111111-2222-4333-8444-555555555555"
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert "secret" not in answer.text


@pytest.mark.parametrize("path", ["/v1/nothing", "/v2/things", "/v1/things/none"])
def test_unknown_path_is_not_found(setting: Setting, path: str) -> None:
    answer = setting.caller.get(path)
    assert answer.status_code == 404
    assert first_error(answer)["code"] == "acstor.path.not_found"


def test_unknown_method_is_told_with_those_there_are(setting: Setting) -> None:
    answer = setting.caller.ask("DELETE", PATH)
    assert answer.status_code == 405
    assert {"GET", "POST"} <= {name.strip() for name in answer.headers["allow"].split(",")}


@pytest.mark.parametrize("asked", [None, "acstor 1.0", "acstor latest", "compute 2.1"])
def test_microversion_is_answered(setting: Setting, asked: str | None) -> None:
    headers = {} if asked is None else {microversions.HEADER: asked}
    answer = setting.caller.ask("GET", PATH, headers=headers)
    assert answer.status_code == 200
    found = microversions.MAXIMUM if asked == "acstor latest" else microversions.MINIMUM
    assert answer.headers[microversions.HEADER] == f"acstor {found}"
    assert microversions.HEADER in answer.headers["Vary"]


@pytest.mark.parametrize(
    ("asked", "status"), [("acstor 9.9", 406), ("acstor 1", 400), ("acstor one", 400)]
)
def test_microversion_that_there_is_not_is_refused(
    setting: Setting, asked: str, status: int
) -> None:
    answer = setting.caller.ask("GET", PATH, headers={microversions.HEADER: asked})
    assert answer.status_code == status
    assert microversions.HEADER in answer.headers["Vary"]
    if status == 406:
        assert first_error(answer)["min_version"] == microversions.MINIMUM
        assert first_error(answer)["max_version"] == microversions.MAXIMUM


def test_answer_unlike_its_schema_is_a_fault_in_tests(setting: Setting) -> None:
    described = Thing.on_post.operation  # type: ignore[attr-defined]
    gate = setting.thing.gate
    for wrong in (Answer({}, status=200), Answer({"size": 0}, status=201), Answer(status=201)):
        with pytest.raises(exception.InternalError):
            gate.send(described, wrong, falcon.Response())


@pytest.fixture
def whole(setting: Setting) -> Iterator[tuple[Any, fixture.AuthTokenFixture]]:
    """Return the application with its middlewares, and Keystone's double."""
    with fixture.AuthTokenFixture() as tokens:
        yield application.build(setting.conf, setting.table), tokens


def test_without_token_only_documents_are_answered(
    whole: tuple[Any, fixture.AuthTokenFixture],
) -> None:
    app, _ = whole
    assert testing.simulate_get(app, PATH).status_code == 401
    assert testing.simulate_get(app, "/healthcheck").status_code == 200
    versions = testing.simulate_get(app, "/")
    assert versions.status_code == 300
    (only,) = versions.json["versions"]
    assert (only["id"], only["version"], only["min_version"]) == ("v1", "1.1", "1.0")
    assert testing.simulate_get(app, "/v1/").json["version"] == only
    document = testing.simulate_get(app, "/v1/openapi.json").json
    assert set(document["paths"]["/v1/things/{thing_id}"]) == {"get", "post"}


def test_token_of_a_project_lets_pass(whole: tuple[Any, fixture.AuthTokenFixture]) -> None:
    app, tokens = whole
    tokens.add_token_data(
        "one", user_id="u", project_id="p" * 32, project_name="p", role_list=["reader", "member"]
    )
    answer = testing.simulate_get(app, PATH, headers={"X-Auth-Token": "one"})
    assert answer.status_code == 200
    assert answer.headers["x-openstack-request-id"].startswith("req-")
    forged = {"X-Auth-Token": "one", "X-Project-Id": "q" * 32, "X-Roles": "admin"}
    asked = testing.simulate_get(app, PATH, headers=forged)
    assert asked.status_code == 200


def test_headers_of_identity_from_outside_are_dropped(
    whole: tuple[Any, fixture.AuthTokenFixture], setting: Setting
) -> None:
    app, tokens = whole
    tokens.add_token_data(
        "one", user_id="u", project_id="p" * 32, project_name="p", role_list=["reader"]
    )
    forged = {"X-Auth-Token": "one", "X-Project-Id": "q" * 32, "X-Roles": "admin"}
    testing.simulate_get(app, PATH, headers=forged)
    (call,) = setting.thing.calls
    assert (call.caller.project, call.is_admin) == ("p" * 32, False)


def test_document_is_plain_json(setting: Setting) -> None:
    app = application.open_application(setting.table)
    found = testing.simulate_get(app, "/v1/openapi.json").json
    assert found["openapi"].startswith("3.1")
    assert json.loads(json.dumps(found)) == found
