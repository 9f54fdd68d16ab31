"""Keystone as Horizon's login meets it: passwords, tokens of one project, and a catalogue."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from testbed.doubles.contract_api import Answer, Request, StartResponse, read_request, send

PASSWORD = "correct horse"
"""Password of everybody."""
TOKEN = "a-token"
DOMAIN = {"id": "default", "name": "Default"}


@dataclasses.dataclass
class Identity:
    """WSGI application of the identity service, version 3, below ``/identity``.

    Source: Keystone's API reference, v3. Differs: there is one project, and tokens do not end.

    :ivar url: where it and ACStor's API are.
    :ivar project: id of the project.
    :ivar roles: roles of whoever logs in.
    """

    url: str
    project: Callable[[], str]
    roles: Callable[[], Iterable[str]]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer."""
        request = read_request(environ)
        return send(self._answer(request), request.method, start_response)

    def _answer(self, request: Request) -> Answer:
        path = request.path.removeprefix("/identity").rstrip("/")
        match request.method, path:
            case "POST", "/v3/auth/tokens":
                return self._authenticate(request.body["auth"])
            case "GET", "" | "/v3":
                return Answer(200, {"version": self._version()})
            case "GET", "/v3/auth/projects" | "/v3/users/alice/projects":
                return Answer(200, {"projects": [self._project()], "links": {}})
            case "GET", "/v3/auth/domains":
                return Answer(200, {"domains": [], "links": {}})
            case "DELETE", "/v3/auth/tokens":
                return Answer(204)
        return _refusal(404, "Not Found")

    def _authenticate(self, wanted: dict[str, Any]) -> Answer:
        password = wanted["identity"].get("password")
        if password and password["user"]["password"] != PASSWORD:
            return _refusal(401, "Unauthorized")
        scope = wanted.get("scope", {})
        if "system" in scope or "domain" in scope:
            return _refusal(401, "Unauthorized")
        token = self._token("project" in scope)
        return Answer(201, {"token": token}, {"X-Subject-Token": TOKEN})

    def _token(self, is_scoped: bool) -> dict[str, Any]:
        found: dict[str, Any] = {
            "methods": ["password"],
            "audit_ids": ["a"],
            "issued_at": "2026-11-27T08:00:00.000000Z",
            "expires_at": "2999-12-31T23:59:59.000000Z",
            "user": {"id": "alice", "name": "alice", "domain": DOMAIN},
        }
        if is_scoped:
            found["project"] = self._project()
            found["roles"] = [{"id": role, "name": role} for role in self.roles()]
            found["catalog"] = [
                self._service("identity", "/identity/v3"),
                self._service("acstor", "/acstor"),
            ]
        return found

    def _project(self) -> dict[str, Any]:
        known = {"id": self.project(), "name": "web", "enabled": True}
        return {**known, "domain": DOMAIN, "domain_id": "default"}

    def _service(self, kind: str, path: str) -> dict[str, Any]:
        region = {"region": "RegionOne", "region_id": "RegionOne"}
        endpoints = [
            {"id": f"{kind}-{interface}", "interface": interface, "url": f"{self.url}{path}"}
            for interface in ("public", "internal", "admin")
        ]
        named = {"type": kind, "name": kind, "id": kind}
        return {**named, "endpoints": [{**each, **region} for each in endpoints]}

    def _version(self) -> dict[str, Any]:
        links = [{"rel": "self", "href": f"{self.url}/identity/v3/"}]
        return {"id": "v3.14", "status": "stable", "links": links}


def _refusal(status: int, title: str) -> Answer:
    return Answer(status, {"error": {"code": status, "title": title, "message": title}})
