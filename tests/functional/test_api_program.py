"""The program acstor-api: it serves by itself until it is told to end."""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from acstor.conf import loading
from acstor.versions.database import schema
from acstor.versions.database.opening import open_database

ROOT = pathlib.Path(__file__).parents[2]
FILE = """
[DEFAULT]
log_file = {folder}/api.log
[api]
bind_port = 0
[database]
connection = sqlite:///{folder}/acstor.sqlite
[origin]
url = posix://{folder}/origin
[keystone]
auth_type = password
auth_url = http://keystone.example
username = acstor
password = secret
[keystone_authtoken]
www_authenticate_uri = http://keystone.example
"""
START = "import sys; from acstor.cmd.api import main; sys.exit(main(sys.argv[1:]))"
START_SECONDS = 120
"""Seconds after which a start counts as failed."""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a configuration file, whose database has its tables."""
    path = tmp_path / "acstor.conf"
    path.write_text(FILE.format(folder=tmp_path))
    conf = loading.load("acstor-api", ["--config-file", str(path)])
    schema.upgrade(open_database(conf))
    return path


def asked(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_it_serves_until_it_is_told_to_end(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.settimeout(START_SECONDS)
    told.bind(str(tmp_path / "notify"))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
    }
    with (
        told,
        subprocess.Popen(
            [sys.executable, "-c", START, "--config-file", str(file)], env=environment
        ) as process,
    ):
        try:
            ready = told.recv(4096).decode()
            assert "READY=1" in ready
            port = int(ready.rstrip().rpartition(":")[2])
            status, body = asked(port, "/v1/")
            assert (status, json.loads(body)["version"]["id"]) == (200, "v1")
            assert asked(port, "/healthcheck")[0] == 200
            assert asked(port, "/nothing/of/ours")[0] == 401
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        finally:
            process.kill()
    assert "the API is at" in (tmp_path / "api.log").read_text()
