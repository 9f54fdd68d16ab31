"""A user's connection to a cloud in this process, and the OpenStack client on it."""

import configparser
import contextlib
import dataclasses
import importlib
import io
import pathlib
import shlex
import types
from typing import Any

import pytest
import requests
from keystoneauth1 import session as keystone_session
from keystoneauth1.identity import v3
from openstack import connection as openstack_connection

from acstorclient.osc import plugin
from testbed.doubles.contract_api import ContractApi
from testbed.doubles.user_cloud import URL, UserCloud
from testbed.fixtures.documents import ROOT
from testbed.fixtures.wsgi_transport import WsgiTransport

CLIENTS = ROOT / "clients"
collect_ignore = [] if (ROOT / "acstor" / "api").is_dir() else ["test_against_api.py"]


def entry_points(group: str) -> dict[str, str]:
    """Return the entry points of the distribution: what is loaded, by its name."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(CLIENTS / "setup.cfg")
    lines = settings["entry_points"][group].strip().splitlines()
    return {
        name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)
    }


def loaded(value: str) -> Any:
    """Return what an entry point names."""
    module, _, attribute = value.partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


@dataclasses.dataclass(frozen=True)
class Result:
    """End of a command."""

    status: int
    output: str
    errors: str


class OpenStackClient:
    """The commands of the plug-in, called as the OpenStack client does it."""

    def __init__(self, connection: openstack_connection.Connection) -> None:
        self.manager = types.SimpleNamespace(sdk_connection=connection)
        self.manager.acstor = plugin.make_client(self.manager)
        self.commands = entry_points("openstack.acstor.v1")

    def run(self, line: str) -> Result:
        """Run a command line, without the word ``openstack``."""
        words = shlex.split(line)
        names = {name.replace("_", " "): value for name, value in self.commands.items()}
        count = max(n for n in range(1, len(words) + 1) if " ".join(words[:n]) in names)
        command_class = loaded(names[" ".join(words[:count])])
        output, errors = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
        app = types.SimpleNamespace(
            client_manager=self.manager,
            stdout=output,
            options=types.SimpleNamespace(debug=False),
        )
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = _run(command_class(app, None), words[count:], " ".join(words[:count]))
        buffer = output.buffer
        assert isinstance(buffer, io.BytesIO)
        return Result(status, buffer.getvalue().decode(), errors.getvalue())


def _run(command: Any, arguments: list[str], name: str) -> int:
    """Run a command as ``cliff.app.App.run_subcommand`` does."""
    import sys

    try:
        parsed = command.get_parser(f"openstack {name}").parse_args(arguments)
        return int(command.run(parsed))
    except SystemExit as error:
        return int(error.code or 0)
    except Exception as error:
        sys.stderr.write(f"{error}\n")
        return 1


@pytest.fixture
def api() -> ContractApi:
    """ACStor's API."""
    return ContractApi()


@pytest.fixture
def cloud(api: ContractApi) -> UserCloud:
    """The cloud around it."""
    return UserCloud(api)


def connected(application: Any, **settings: Any) -> openstack_connection.Connection:
    """Return a connection of a user to an application."""
    transport = requests.Session()
    transport.mount("http://", WsgiTransport(application))
    auth = v3.Password(
        auth_url=f"{URL}/identity/v3",
        username="alice",
        password="secret",
        project_name="web",
        user_domain_name="Default",
        project_domain_name="Default",
    )
    session = keystone_session.Session(auth=auth, session=transport)
    return openstack_connection.Connection(session=session, region_name="RegionOne", **settings)


@pytest.fixture
def connection(cloud: UserCloud) -> openstack_connection.Connection:
    """A user's connection to it."""
    return connected(cloud)


@pytest.fixture
def client(
    connection: openstack_connection.Connection, monkeypatch: pytest.MonkeyPatch
) -> OpenStackClient:
    """The OpenStack client on that connection, in a terminal of a known width."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("CLIFF_FIT_WIDTH", raising=False)
    return OpenStackClient(connection)


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder, which is the present one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
