"""Sessions with other services, with the credentials of [keystone]."""

import json
import pathlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception, identity
from acstor.conf import loading
from acstor.registrar.image_service.memory import MemoryImageService
from acstor.registrar.image_service.opening import open_image_service
from testbed.doubles.glance_server import GlanceServer
from testbed.doubles.registrar_cloud import content_of, describe


class Keystone(ThreadingHTTPServer):
    """Gives tokens and a service catalogue."""

    daemon_threads = True

    def __init__(self, image_url: str) -> None:
        self.image_url = image_url
        self.requests: list[dict[str, Any]] = []
        self.is_refusing = False
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v3"


class _Handler(BaseHTTPRequestHandler):
    server: Keystone

    def do_GET(self) -> None:
        version = {"id": "v3.14", "status": "stable", "links": [
            {"rel": "self", "href": self.server.url + "/"}
        ]}  # fmt: skip
        self._answer(200, {"version": version})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(json.loads(body))
        if self.server.is_refusing:
            self._answer(401, {"error": {"code": 401, "message": "no", "title": "Unauthorized"}})
            return
        endpoints = [
            {"interface": "internal", "region": "here", "region_id": "here", "id": "e1",
             "url": self.server.image_url},
            {"interface": "internal", "region": "there", "region_id": "there", "id": "e2",
             "url": "http://127.0.0.1:1"},
        ]  # fmt: skip
        catalog = [{"type": "image", "name": "glance", "id": "s", "endpoints": endpoints}]
        token = {"methods": ["password"], "expires_at": "2100-01-01T00:00:00.000000Z",
                 "issued_at": "2026-01-01T00:00:00.000000Z", "catalog": catalog,
                 "user": {"id": "u", "name": "acstor", "domain": {"id": "d", "name": "Default"}},
                 "project": {"id": "p", "name": "service", "domain": {"id": "d", "name": "D"}},
                 "roles": [{"id": "r", "name": "admin"}], "audit_ids": ["a"]}  # fmt: skip
        self._answer(201, {"token": token}, {"X-Subject-Token": "the-token"})

    def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def glance() -> Iterator[GlanceServer]:
    server = GlanceServer(MemoryImageService())
    yield server
    server.close()


@pytest.fixture
def keystone(glance: GlanceServer) -> Iterator[Keystone]:
    server = Keystone(glance.url)
    yield server
    server.shutdown()
    server.server_close()


def configure(folder: pathlib.Path, text: str) -> cfg.ConfigOpts:
    path = folder / "acstor.conf"
    path.write_text(text)
    return loading.load("test", ["--config-file", str(path)])


def credentials(url: str) -> str:
    return (
        f"[keystone]\nauth_type = password\nauth_url = {url}\nusername = acstor\n"
        "password = secret\nproject_name = service\nuser_domain_name = Default\n"
        "project_domain_name = Default\n"
    )


def test_image_service_is_found_in_the_catalogue_and_given_a_token(
    tmp_path: pathlib.Path, keystone: Keystone, glance: GlanceServer
) -> None:
    image = describe("00000000-0000-4000-8000-000000000001", content_of(1))
    glance.images.put(image, content_of(1))
    conf = configure(tmp_path, credentials(keystone.url) + "[glance]\nregion_name = here\n")
    assert identity.is_configured(conf)
    service = open_image_service(conf, identity.open_session(conf))
    assert service.list_images() == [image]
    assert service.find_image(image.id) == image
    assert set(glance.tokens) == {"the-token"}
    assert len(keystone.requests) == 1, "the token is kept"
    assert keystone.requests[0]["auth"]["identity"]["password"]["user"]["name"] == "acstor"


def test_endpoint_can_be_named_instead(
    tmp_path: pathlib.Path, keystone: Keystone, glance: GlanceServer
) -> None:
    keystone.image_url = "http://127.0.0.1:1"
    text = credentials(keystone.url) + f"[glance]\nendpoint_override = {glance.url}\n"
    conf = configure(tmp_path, text)
    assert open_image_service(conf, identity.open_session(conf)).list_images() == []


def test_wrong_password_is_invalid_and_no_secret_is_told(
    tmp_path: pathlib.Path, keystone: Keystone
) -> None:
    keystone.is_refusing = True
    conf = configure(tmp_path, credentials(keystone.url))
    service = open_image_service(conf, identity.open_session(conf))
    with pytest.raises(exception.InvalidError, match="Keystone gives no access") as caught:
        service.list_images()
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_region_without_the_service_is_invalid(tmp_path: pathlib.Path, keystone: Keystone) -> None:
    conf = configure(tmp_path, credentials(keystone.url) + "[glance]\nregion_name = nowhere\n")
    service = open_image_service(conf, identity.open_session(conf))
    with pytest.raises(exception.InvalidError, match="no access to the image service"):
        service.list_images()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no credentials"),
        ("[keystone]\nauth_type = nonsense\n", r"\[keystone\]: .*nonsense"),
        ("[keystone]\nauth_type = password\n", r"\[keystone\]: .*auth_url"),
    ],
)
def test_missing_credentials_are_a_fault_of_the_configuration(
    tmp_path: pathlib.Path, text: str, message: str
) -> None:
    with pytest.raises(exception.ConfigurationError, match=message):
        identity.open_session(configure(tmp_path, text))


def test_contradicting_adapter_is_a_fault_of_the_configuration(
    tmp_path: pathlib.Path, keystone: Keystone
) -> None:
    text = credentials(keystone.url) + "[glance]\nversion = 2\nmin_version = 2\n"
    conf = configure(tmp_path, text)
    session = identity.open_session(conf)
    with pytest.raises(exception.ConfigurationError, match=r"\[glance\]"):
        open_image_service(conf, session)
