"""The client's wheel: pure Python, and the OpenStack client finds its commands."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any
from wsgiref import simple_server

import pytest

from testbed.doubles.contract_api import StartResponse
from testbed.doubles.user_cloud import URL, UserCloud
from testbed.fixtures.documents import ROOT
from testbed.fixtures.wheels import build_wheel

BUILD_TIMEOUT = 600


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the wheel."""
    return build_wheel(ROOT / "clients", tmp_path_factory.mktemp("client"), BUILD_TIMEOUT)


@pytest.mark.timeout(700)
def test_wheel_is_pure_and_complete(wheel: pathlib.Path) -> None:
    assert wheel.name == "python_acstorclient-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        requirements = archive.read(metadata).decode()
    sources = (ROOT / "clients" / "acstorclient").rglob("*.py")
    own = {str(path.relative_to(ROOT / "clients")) for path in sources}
    assert own | {"acstorclient/py.typed"} == {name for name in names if ".dist-info/" not in name}
    assert "Requires-Dist: openstacksdk>=" in requirements
    assert "Requires-Dist: acstor" not in requirements


@pytest.fixture
def proxy() -> Iterator[str]:
    """Serve a cloud as the proxy of a client, so that its names need no resolution."""
    cloud = UserCloud()

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = urllib.parse.urlsplit(environ["PATH_INFO"]).path
        return cloud({**environ, "PATH_INFO": path}, start_response)

    with simple_server.make_server("127.0.0.1", 0, answer, handler_class=Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


class Silent(simple_server.WSGIRequestHandler):
    """Prints no line for each request."""

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def openstack(folder: pathlib.Path, *arguments: str, **variables: str) -> str:
    """Return what the OpenStack client prints that has the wheel's content in its path."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "openstackclient.shell", *arguments],
        cwd=folder,
        env=plain | {"PYTHONPATH": str(folder), "HOME": str(folder)} | variables,
        check=True,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
    )
    return done.stdout


@pytest.mark.timeout(700)
def test_openstack_client_finds_the_commands(
    wheel: pathlib.Path, tmp_path: pathlib.Path, proxy: str
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    shown = openstack(tmp_path, "acstor", "version", "create", "--help")
    assert "acstor version create [-h]" in shown
    assert "--consistency" in shown
    variables = {
        "OS_AUTH_URL": f"{URL}/identity/v3",
        "OS_USERNAME": "alice",
        "OS_PASSWORD": "secret",
        "OS_PROJECT_NAME": "web",
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
        "http_proxy": proxy,
        "no_proxy": "",
    }
    command = ("acstor", "version", "list", "--server", "web-1", "-f", "json")
    for version in ((), ("--os-acstor-api-version", "1.0")):
        found = json.loads(openstack(tmp_path, *version, *command, **variables))
        assert [each["Name"] for each in found] == ["before-upgrade", "nightly"]
