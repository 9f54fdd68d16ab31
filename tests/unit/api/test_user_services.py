"""Servers and volumes asked of Nova and Cinder with the caller's token."""

import json
from typing import Any

import pytest
from keystoneauth1 import exceptions as ks_exceptions
from oslo_context.context import RequestContext

from acstor import exception
from acstor.api.caller import Caller
from acstor.api.errors import ApiError
from acstor.api.user_services import KeystoneServices, Kind, SeenThing
from acstor.versions.services.compute import MICROVERSION

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
        self.options: dict[str, Any] = {}

    def get(self, path: str, auth: object, **options: Any) -> Response:
        """Answer, or raise."""
        self.options = options
        self.asked.append((path, auth))
        if isinstance(self.answer, Exception):
            raise self.answer
        return Response(self.answer)


def asked(kind: str, answer: Any) -> Adapter:
    """Ask for a thing whose service answers so."""
    adapter = Adapter(answer)
    services = KeystoneServices(adapter, adapter, adapter)
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


def test_server_is_described_as_its_owner_sees_it() -> None:
    fields = {"tenant_id": PROJECT, "status": "ACTIVE", "flavor": {"ephemeral": 5}, "locked": True}
    adapter = Adapter({"server": fields})
    found = KeystoneServices(adapter, adapter, adapter).server(CALLER, "1")
    assert (found.id, found.status, found.ephemeral_gib, found.is_locked) == (
        "1",
        "ACTIVE",
        5,
        True,
    )
    assert (found.host, found.root_device) == (None, None)
    assert adapter.asked == [("/servers/1", TOKEN)]
    assert adapter.options["microversion"] == MICROVERSION
    adapter.answer = {"server": {**fields, "tenant_id": "other"}}
    with pytest.raises(ApiError):
        KeystoneServices(adapter, adapter, adapter).server(CALLER, "1")


def test_properties_of_an_image_that_nobody_sees_are_none() -> None:
    adapter = Adapter({"hw_firmware_type": "uefi", "size": 3})
    services = KeystoneServices(adapter, adapter, adapter)
    assert services.image_properties(CALLER, "1") == {"hw_firmware_type": "uefi"}
    adapter.answer = ks_exceptions.NotFound()
    assert services.image_properties(CALLER, "1") == {}
    adapter.answer = ["nonsense"]
    with pytest.raises(exception.UnavailableError):
        services.image_properties(CALLER, "1")


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


def test_images_and_volumes_are_listed_with_the_own_token() -> None:
    image = {"id": "i", "name": None, "size": 5, "disk_format": "qcow2"}
    adapter = Adapter({"images": [image], "volumes": [{"id": "v", "name": "data", "size": 2}]})
    services = KeystoneServices(adapter, adapter, adapter)
    assert services.page(CALLER, Kind.IMAGE, 2, None, "a b") == [SeenThing("i", "", 5)]
    assert services.page(CALLER, Kind.VOLUME, 2, "v0", None) == [SeenThing("v", "data", 2 << 30)]
    assert adapter.asked == [
        ("/v2/images?limit=2&name=a+b", TOKEN),
        ("/volumes/detail?limit=2&marker=v0", TOKEN),
    ]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (Kind.IMAGE, {"id": "1", "name": "n", "size": None}),
        (Kind.VOLUME, {"volume": {"id": "1", "name": "n"}}),
    ],
)
def test_one_thing_is_found(kind: Kind, answer: Any) -> None:
    services = KeystoneServices(*[Adapter(answer)] * 3)
    assert services.find(CALLER, kind, "1") == SeenThing("1", "n", None)
    services = KeystoneServices(*[Adapter(ks_exceptions.NotFound())] * 3)
    assert services.find(CALLER, kind, "1") is None


@pytest.mark.parametrize("kind", list(Kind))
def test_list_that_cannot_be_had_is_told(kind: Kind) -> None:
    services = KeystoneServices(*[Adapter(ks_exceptions.BadRequest())] * 3)
    with pytest.raises(ApiError):
        services.page(CALLER, kind, 2, "none", None)
    answers: list[Any] = [ks_exceptions.ConnectFailure(), {}, [], {f"{kind}s": [{}]}]
    for answer in answers:
        services = KeystoneServices(*[Adapter(answer)] * 3)
        with pytest.raises(exception.UnavailableError):
            services.page(CALLER, kind, 2, None, None)
