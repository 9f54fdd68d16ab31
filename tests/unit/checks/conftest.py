"""Configurations of a machine whose every path lies in the test's directory."""

import pathlib
from collections.abc import Callable

import pytest
from oslo_config import cfg
from oslo_log import log
from oslo_upgradecheck.upgradecheck import Result

from acstor.conf import opts

Configure = Callable[..., cfg.ConfigOpts]

PLAIN = """
[DEFAULT]
host = compute1
state_path = {path}
[origin]
url = posix://{path}/origin
timeout = 0.2
[dataplane]
admin_socket = {path}/run/dataplane.sock
[coordination]
backend_url = file://{path}/coordination
[peer]
listen_address = 127.0.0.1
ca_file = {path}/tls/ca.pem
cert_file = {path}/tls/host.pem
key_file = {path}/tls/host.key
"""


@pytest.fixture
def config_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "acstor.conf"
    path.write_text(PLAIN.format(path=tmp_path))
    (tmp_path / "origin").mkdir()
    (tmp_path / "run").mkdir()
    return path


@pytest.fixture
def configure(config_file: pathlib.Path) -> Configure:
    """Return a function that reads the plain configuration and the text it is given."""

    def configure(text: str = "") -> cfg.ConfigOpts:
        conf = cfg.ConfigOpts()
        opts.register_all(conf)
        log.register_options(conf)
        with config_file.open("a") as file:
            file.write(text)
        conf(["--config-file", str(config_file)], project="acstor", default_config_dirs=[])
        return conf

    return configure


@pytest.fixture
def compute(tmp_path: pathlib.Path, configure: Configure) -> cfg.ConfigOpts:
    """Return the configuration of a host that has a chunk store."""
    (tmp_path / "store").mkdir()
    return configure()


def text(result: Result) -> str:
    """Return the details of a result, which every check gives."""
    assert result.details
    return result.details
