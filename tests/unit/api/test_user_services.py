"""Servers and volumes asked of Nova and Cinder with the caller's token."""

import json
from typing import Any

import pytest
from keystoneauth1 import exceptions as ks_exceptions
from oslo_context.context import RequestContext

from acstor import exception
from acstor.api.caller import Caller
from acstor.api.errors import ApiError
from acstor.api.user_services import KeystoneServices

PROJECT = "9b2e4d6f80a14c35b7d9e1f203a5c7e9"
TOKEN = object()
CALLER = Caller(RequestContext(user_id="u", project_id=PROJECT), PROJECT, TOKEN)


class Response:
    """Answer of a service."""

    def __init__(self, body: Any) -> None:
        self.content = body if isinstance(body, bytes) else json.dumps(body).encode()


class Adapter:
    """Adapter of keystoneauth that answers one thing."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []

    def get(self, path: str, auth: object, **options: Any) -> Response:
        """Answer, or raise."""
        del options
        self.asked.append((path, auth))
        if isinstance(self.answer, Exception):
            raise self.answer
        return Response(self.answer)


def asked(kind: str, answer: Any) -> Adapter:
    """Ask for a thing whose service answers so."""
    adapter = Adapter(answer)
    services = KeystoneServices(adapter, adapter)
    require = services.require_server if kind == "server" else services.require_volume
    require(CALLER, "1")
    return adapter


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("server", {"server": {"tenant_id": PROJECT}}),
        ("volume", {"volume": {"os-vol-tenant-attr:tenant_id": PROJECT}}),
        ("volume", {"volume": {}}),
    ],
)
def test_own_thing_is_asked_for_with_the_own_token(kind: str, answer: Any) -> None:
    assert asked(kind, answer).asked == [(f"/{kind}s/1", TOKEN)]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("server", ks_exceptions.NotFound()),
        ("server", ks_exceptions.Forbidden()),
        ("volume", ks_exceptions.NotFound()),
        # An administrator sees those of others, too.
        ("server", {"server": {"tenant_id": "other"}}),
        ("server", {"server": {}}),
        ("volume", {"volume": {"os-vol-tenant-attr:tenant_id": "other"}}),
    ],
)
def test_thing_of_others_is_refused(kind: str, answer: Any) -> None:
    with pytest.raises(ApiError) as caught:
        asked(kind, answer)
    assert caught.value.code == f"acstor.{kind}.unknown"


@pytest.mark.parametrize(
    "answer",
    [
        ks_exceptions.ConnectFailure(),
        ks_exceptions.InternalServerError(),
        ks_exceptions.EndpointNotFound(),
        b"<html>",
        {},
        [],
        {"server": []},
    ],
)
def test_service_that_does_not_answer_is_told(answer: Any) -> None:
    with pytest.raises(exception.UnavailableError):
        asked("server", answer)
