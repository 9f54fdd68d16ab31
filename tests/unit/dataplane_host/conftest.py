import pathlib
import tempfile
from collections.abc import Iterator

import pytest
from oslo_config import cfg
from oslo_log import log

from acstor.conf import loading
from tests.doubles.memory_runtime import MemoryRuntime


@pytest.fixture(autouse=True)
def unlocked_stores() -> None:
    MemoryRuntime.locked_stores.clear()


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A directory for sockets: their paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="acstor-") as path:
        yield pathlib.Path(path)


@pytest.fixture
def conf(tmp_path: pathlib.Path, short_path: pathlib.Path) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text(
        f"""
[DEFAULT]
host = h1
state_path = {tmp_path}/state
[origin]
url = posix://{tmp_path}/origin
[store]
capacity = 64MiB
[dataplane]
admin_socket = {tmp_path}/admin.sock
[volumes]
socket_directory = {short_path}
control_socket = {tmp_path}/volumes.sock
[peer]
listen_address = 127.0.0.1
listen_port = 0
tls_enabled = false
"""
    )
    return loading.load("test", ["--config-file", str(path)], log.register_options)
