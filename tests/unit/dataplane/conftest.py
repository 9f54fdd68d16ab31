import pathlib
import tempfile
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg
from oslo_log import log

from acstor.conf import loading
from acstor.control import protocol
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.memory_runtime import MemoryRuntime
from tests.unit.dataplane.volume_hosts import PATIENT_SECONDS, SIZE, VOLUME, HostUnderTest


@pytest.fixture(autouse=True)
def patient_sockets() -> Iterator[None]:
    """Have the admin socket wait for who stands still between a request and its answer.

    By a patch of its own: that of the test ends before the directories that it has patched.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in ("REQUEST_DEADLINE", "RESPONSE_DEADLINE"):
            patched.setattr(protocol, name, PATIENT_SECONDS)
        yield


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


@pytest.fixture
def path() -> Iterator[pathlib.Path]:
    """A directory in memory, where there is one: thousands of files are synced."""
    memory = pathlib.Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="acstor-", dir=memory if memory.is_dir() else None
    ) as name:
        yield pathlib.Path(name)


# Volumes


@pytest.fixture
def origin() -> MemoryOrigin:
    return MemoryOrigin()


@pytest.fixture
def store(origin: MemoryOrigin) -> VolumeStore:
    store = VolumeStore(Repository.init(origin))
    store.create(NewVolume(VOLUME, SIZE))
    store.allow_host(VOLUME, "h1")
    return store


@pytest.fixture
def add_host(
    conf: cfg.ConfigOpts, origin: MemoryOrigin, tmp_path: pathlib.Path, short_path: pathlib.Path
) -> Iterator[Callable[[str], HostUnderTest]]:
    hosts: list[HostUnderTest] = []

    def add(name: str) -> HostUnderTest:
        conf_of_host = conf
        if name != "h1":
            text = (tmp_path / "acstor.conf").read_text()
            text = text.replace(str(tmp_path), f"{tmp_path}/{name}")
            text = text.replace(str(short_path), f"{short_path}/{name}")
            path = tmp_path / f"{name}.conf"
            path.write_text(text.replace("host = h1", f"host = {name}"))
            conf_of_host = loading.load("test", ["--config-file", str(path)], log.register_options)
        hosts.append(HostUnderTest(conf_of_host, origin))
        return hosts[-1]

    yield add
    for host in hosts:
        host.plane.stop()


@pytest.fixture
def host(store: VolumeStore, add_host: Callable[[str], HostUnderTest]) -> HostUnderTest:
    return add_host("h1")
