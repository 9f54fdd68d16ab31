"""The check of Keystone and Glance, against a small server that speaks for both."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import dependencies
from tests.unit.checks.conftest import Configure, text


class Services(http.server.ThreadingHTTPServer):
    """Keystone at /v3, Glance at /image."""

    roles: tuple[str, ...] = ("admin", "reader")
    token_status = 201
    image_status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def token(self) -> dict[str, object]:
        endpoint = {
            "id": "e", "interface": "internal", "region": "r", "region_id": "r",
            "url": f"{self.url}/image",
        }  # fmt: skip
        return {
            "token": {
                "methods": ["password"],
                "user": {"id": "u", "name": "acstor", "domain": {"id": "d", "name": "Default"}},
                "project": {"id": "p", "name": "service", "domain": {"id": "d", "name": "Default"}},
                "roles": [{"id": name, "name": name} for name in self.roles],
                "expires_at": "2099-01-01T00:00:00.000000Z",
                "issued_at": "2026-01-01T00:00:00.000000Z",
                "catalog": [
                    {"id": "s", "type": "image", "name": "glance", "endpoints": [endpoint]}
                ],
            }
        }


class Handler(http.server.BaseHTTPRequestHandler):
    server: Services

    def do_POST(self) -> None:
        assert self.path == "/v3/auth/tokens"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["auth"]["identity"]["password"]["user"]["password"] == "secret"
        self.answer(self.server.token_status, self.server.token())

    def do_GET(self) -> None:
        if self.path.startswith("/image/v2/images"):
            self.answer(self.server.image_status, {"images": []})
        else:
            self.answer(404, {})

    def answer(self, status: int, content: object) -> None:
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("X-Subject-Token", "token")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def services() -> Iterator[Services]:
    with Services(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def credentials(url: str) -> str:
    return (
        f"[keystone]\nauth_type = password\nauth_url = {url}/v3\nusername = acstor\n"
        "password = secret\nproject_name = service\nuser_domain_name = Default\n"
        "project_domain_name = Default\n"
    )


def test_no_credentials_are_fine(configure: Configure) -> None:
    assert dependencies.check_identity(configure()).code is Code.SUCCESS


def test_credentials_of_an_administrator(configure: Configure, services: Services) -> None:
    result = dependencies.check_identity(configure(credentials(services.url)))
    assert (result.code, text(result)) == (
        Code.SUCCESS,
        "Keystone and Glance answer; the roles are admin, reader",
    )


def test_credentials_that_do_not_see_every_image(configure: Configure, services: Services) -> None:
    services.roles = ("reader",)
    result = dependencies.check_identity(configure(credentials(services.url)))
    assert result.code is Code.WARNING
    assert "only 'admin' sees the private images of other projects" in text(result)


@pytest.mark.parametrize(("token_status", "image_status"), [(401, 200), (201, 403)])
def test_refusal_is_a_failure_without_the_password(
    configure: Configure, services: Services, token_status: int, image_status: int
) -> None:
    services.token_status, services.image_status = token_status, image_status
    result = dependencies.check_identity(configure(credentials(services.url)))
    assert result.code is Code.FAILURE
    assert "secret" not in text(result)


def test_keystone_that_is_down_is_a_failure(configure: Configure, services: Services) -> None:
    url = services.url
    services.server_close()
    result = dependencies.check_identity(configure(credentials(url)))
    assert result.code is Code.FAILURE
    assert "check [keystone] and [glance]" in text(result)


def test_credentials_that_lack_a_part(configure: Configure) -> None:
    result = dependencies.check_identity(configure("[keystone]\nauth_type = nonesuch\n"))
    assert result.code is Code.FAILURE
    assert "[keystone]" in text(result)
