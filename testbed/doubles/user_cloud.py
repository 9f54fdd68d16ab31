"""A cloud as a user's client meets it: Keystone, Nova, Cinder, Glance, Neutron, and ACStor's API.

Of the other services it has what the commands ask of them.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from testbed.doubles.contract_api import (
    PREFIX,
    Answer,
    ContractApi,
    Request,
    StartResponse,
    read_request,
    send,
)

URL = "http://cloud.example"
SERVER_ID = "2f9c4a70-1b7e-4f0e-9a52-6b1c0d3e8f41"
VOLUME_ID = "7c1d9e52-83f4-4a6b-b0c9-51d2e7a8c630"
IMAGE_ID = "6d0f8b3a-2c7e-4519-b8a4-e5f1c9d7036b"
PROJECT_ID = "9b2e4d6f80a14c35b7d9e1f203a5c7e9"
NEW_SERVER_ID = "0d4b8f2e-6a1c-4573-9e8d-b7c5f3a1d960"

_SERVICES = {
    "compute": "/compute/v2.1",
    "block-storage": "/volume/v3",
    "image": "/image",
    "network": "/networking",
    "acstor": PREFIX,
}
_LISTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "/compute/v2.1/servers": ("servers", [{"id": SERVER_ID, "name": "web-1"}]),
    "/compute/v2.1/flavors": ("flavors", [{"id": "2", "name": "m1.small"}]),
    "/volume/v3/volumes": ("volumes", [{"id": VOLUME_ID, "name": "data"}]),
    "/image/v2/images": ("images", [{"id": IMAGE_ID, "name": "debian-12"}]),
    "/networking/v2.0/networks": ("networks", [{"id": "net-1", "name": "private"}]),
    "/networking/v2.0/ports": ("ports", [{"id": "port-1", "name": "kept-address"}]),
}
"""Lists of other services by their paths: the key, and what is in them."""


@dataclasses.dataclass
class UserCloud:
    """WSGI application of all services, under one name."""

    api: Callable[[dict[str, Any], StartResponse], Iterable[bytes]] = dataclasses.field(
        default_factory=ContractApi
    )
    """ACStor's, below :data:`PREFIX`."""
    requests: list[Request] = dataclasses.field(default_factory=list)
    """Requests to the others."""
    server_states: list[str] = dataclasses.field(default_factory=lambda: ["BUILD", "ACTIVE"])
    """Statuses of the new server, each shown once; the last one stays."""

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer."""
        path = environ["PATH_INFO"]
        if path == PREFIX or path.startswith(f"{PREFIX}/"):
            environ = {**environ, "SCRIPT_NAME": PREFIX}
            environ["PATH_INFO"] = path.removeprefix(PREFIX) or "/"
            return self.api(environ, start_response)
        request = read_request(environ)
        self.requests.append(request)
        return send(self._answer(request), request.method, start_response)

    def _answer(self, request: Request) -> Answer:
        path = request.path.rstrip("/")
        if path == "/identity/v3/auth/tokens":
            return Answer(201, {"token": token()}, {"X-Subject-Token": "a-token"})
        if found := _DISCOVERY.get(path):
            return Answer(200, found)
        if (request.method, path) == ("POST", "/compute/v2.1/servers"):
            return Answer(202, {"server": {"id": NEW_SERVER_ID, "links": []}})
        if path == f"/compute/v2.1/servers/{NEW_SERVER_ID}":
            return Answer(200, {"server": self._new_server()})
        listed = _LISTS.get(path.removesuffix("/detail"))
        if listed is None:
            return Answer(404, {"itemNotFound": {"message": f"there is no {path}", "code": 404}})
        key, items = listed
        wanted = request.query.get("name", [])
        # Nova's filter is a regular expression.
        hits = [each for each in items if all(re.search(name, each["name"]) for name in wanted)]
        return Answer(200, {key: hits})

    def _new_server(self) -> dict[str, Any]:
        status = self.server_states[0]
        if len(self.server_states) > 1:
            self.server_states.pop(0)
        server = {
            "id": NEW_SERVER_ID,
            "name": "web-1-before",
            "status": status,
            "addresses": {"private": [{"addr": "10.0.0.17", "version": 4}]},
        }
        if status == "ERROR":
            server["fault"] = {"message": "No valid host was found.", "code": 500}
        return server


def _versions(path: str, minor: str, key: str) -> Mapping[str, Any]:
    links = [{"rel": "self", "href": f"{URL}{path}/"}]
    return {
        key: {
            "id": "v2.1" if "compute" in path else "v3.0",
            "status": "CURRENT",
            "version": minor,
            "min_version": "2.1" if "compute" in path else "3.0",
            "links": links,
        }
    }


_DISCOVERY: dict[str, Any] = {
    "/identity/v3": {
        "version": {
            "id": "v3.14",
            "status": "stable",
            "links": [{"rel": "self", "href": f"{URL}/identity/v3/"}],
        }
    },
    "/compute/v2.1": _versions("/compute/v2.1", "2.96", "version"),
    "/volume/v3": {"versions": [_versions("/volume/v3", "3.70", "version")["version"]]},
    "/image": {
        "versions": [
            {
                "id": "v2.17",
                "status": "CURRENT",
                "links": [{"rel": "self", "href": f"{URL}/image/v2/"}],
            }
        ]
    },
}
"""Documents that clients read before the first request to a service."""


def token() -> dict[str, Any]:
    """Return the body of a token with the catalogue."""

    def service(kind: str, path: str) -> dict[str, Any]:
        endpoint = {
            "id": kind,
            "interface": "public",
            "region": "RegionOne",
            "region_id": "RegionOne",
            "url": f"{URL}{path}",
        }
        return {"type": kind, "name": kind, "id": kind, "endpoints": [endpoint]}

    return {
        "methods": ["password"],
        "issued_at": "2026-11-27T08:00:00.000000Z",
        "expires_at": "2999-12-31T23:59:59.000000Z",
        "user": {"id": "u-1", "name": "alice", "domain": {"id": "default", "name": "Default"}},
        "project": {
            "id": PROJECT_ID,
            "name": "web",
            "domain": {"id": "default", "name": "Default"},
        },
        "roles": [{"id": "r-1", "name": "member"}],
        "catalog": [service(kind, path) for kind, path in _SERVICES.items()],
    }
