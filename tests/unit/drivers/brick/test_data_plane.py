"""The calls of the services against the data plane's own volume socket."""

import pathlib
import tempfile
from collections.abc import Iterator

import pytest
from oslo_config import cfg
from oslo_log import log

from acstor import exception
from acstor.conf import loading
from acstor.drivers.brick.volume_calls import VolumeCalls, VolumeInUseError
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import MemoryRuntime
from tests.unit.drivers.conftest import SIZE, VOLUME


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> Iterator[cfg.ConfigOpts]:
    with tempfile.TemporaryDirectory(prefix="acstor-") as short:
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
admin_socket = {short}/admin.sock
[volumes]
socket_directory = {short}/nbd
control_socket = {short}/volumes.sock
[peer]
listen_address = 127.0.0.1
listen_port = 0
tls_enabled = false
"""
        )
        MemoryRuntime.locked_stores.clear()
        yield loading.load("test", ["--config-file", str(path)], log.register_options)


@pytest.fixture
def origin() -> MemoryOrigin:
    return MemoryOrigin()


@pytest.fixture
def store(origin: MemoryOrigin) -> VolumeStore:
    store = VolumeStore(Repository.init(origin))
    store.create(NewVolume(VOLUME, SIZE))
    return store


@pytest.fixture
def plane(
    conf: cfg.ConfigOpts, origin: MemoryOrigin, store: VolumeStore
) -> Iterator[MemoryDataPlane]:
    plane = MemoryDataPlane(conf, origin)
    plane.start()
    yield plane
    plane.stop()


@pytest.fixture
def calls(conf: cfg.ConfigOpts, plane: MemoryDataPlane) -> VolumeCalls:
    return VolumeCalls(conf.volumes.control_socket)


def test_volume_is_opened_where_cinder_has_let_attach(
    calls: VolumeCalls, store: VolumeStore
) -> None:
    with pytest.raises(exception.FencedError):
        calls.open(VOLUME)
    store.allow_host(VOLUME, "h1")
    opened = calls.open(VOLUME)
    assert (opened.size_bytes, opened.role) == (SIZE, "owner")
    assert pathlib.Path(opened.socket).is_socket()
    assert calls.open(VOLUME) == opened
    assert calls.status(VOLUME)["size_bytes"] == SIZE
    calls.close(VOLUME)
    calls.close(VOLUME)
    assert not pathlib.Path(opened.socket).exists()
    assert store.get(VOLUME).record.owner is None


def test_role_that_nova_has_stored_for_good_is_the_role_at_most(
    calls: VolumeCalls, store: VolumeStore
) -> None:
    store.allow_host(VOLUME, "h1")
    assert calls.open(VOLUME, "standby").role == "owner"


def test_volume_in_use_stays_open_until_forced(
    calls: VolumeCalls, store: VolumeStore, plane: MemoryDataPlane
) -> None:
    store.allow_host(VOLUME, "h1")
    calls.open(VOLUME)
    assert plane.runtime is not None
    plane.runtime.volumes[VOLUME].clients = 1
    assert calls.status(VOLUME)["clients"] == 1
    with pytest.raises(VolumeInUseError, match="in use"):
        calls.close(VOLUME, wait=0.1)
    calls.close(VOLUME, force=True)
    with pytest.raises(exception.NotFoundError):
        calls.status(VOLUME)


def test_host_has_a_name(calls: VolumeCalls) -> None:
    assert calls.host() == "h1"


def test_unknown_volume_is_not_found(calls: VolumeCalls) -> None:
    with pytest.raises(exception.NotFoundError):
        calls.open("00000000-0000-0000-0000-000000000009")


def test_socket_of_the_services_does_nothing_else(calls: VolumeCalls) -> None:
    for method in ("image.detach", "ring.set", "process.restart", "volume.resize", "status"):
        with pytest.raises(exception.UnsupportedError):
            calls._client.call(method)
