"""Plug-ins of Nova and Cinder with real data planes: the connector's file, the driver, QEMU."""

import json
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from os_brick.initiator import connector as brick
from oslo_config import cfg

from acstor.drivers.brick import options, registration
from acstor.drivers.brick.volume_calls import VolumeCalls
from acstor.drivers.nova.volumes.online_extend import OnlineExtension
from testbed.fixtures.host_volumes import Volumes, call
from testbed.fixtures.hosts import MIB, Cloud, Host
from testbed.fixtures.qmp import Qemu
from tests.unit.drivers.nova.volumes.conftest import INSTANCE
from tests.unit.drivers.nova.volumes.conftest import Host as NovaHost

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 32 * MIB


@pytest.fixture
def control(cloud: Cloud) -> Volumes:
    return Volumes(cloud)


@pytest.fixture
def host(cloud: Cloud) -> Iterator[Host]:
    """A host whose volume socket is the one that this process is configured for."""
    host = cloud.add_host(agent=False)
    options.register_opts(cfg.CONF)
    cfg.CONF.set_override("volume_socket", str(host.path / "volumes.sock"), options.GROUP)
    yield host
    cfg.CONF.clear_override("volume_socket", options.GROUP)


@pytest.fixture
def connector(host: Host) -> Any:
    registration.register()
    return brick.InitiatorConnector.factory("acstor", "sudo")


def properties(volume: str) -> dict[str, Any]:
    return {"volume_id": volume, "name_id": volume, "role": "owner", "access_mode": "rw"}


def test_cinders_file_keeps_what_was_written_from_attachment_to_attachment(
    control: Volumes, host: Host, connector: Any
) -> None:
    volume = control.create(SIZE, host)
    content = os.urandom(3 * MIB + 777)
    device = connector.connect_volume(properties(volume))
    assert connector.check_valid_device(device["path"])
    device["path"].seek(5_000_001)
    device["path"].write(content)
    connector.disconnect_volume(properties(volume), device)
    assert control.store.get(volume).record.owner is None
    device = connector.connect_volume(properties(volume))
    device["path"].seek(5_000_001)
    assert device["path"].read(len(content)) == content
    assert connector.extend_volume(properties(volume)) == SIZE
    connector.disconnect_volume(properties(volume), device)


def test_cinders_file_outlives_a_killed_data_plane(
    control: Volumes, host: Host, connector: Any
) -> None:
    volume = control.create(SIZE, host)
    content = os.urandom(MIB)
    device = connector.connect_volume(properties(volume))
    file = device["path"]
    killed = host.dataplane_pid()
    assert killed is not None
    writing = threading.Event()

    def kill() -> None:
        assert writing.wait(60)
        host.kill_dataplane()

    killer = threading.Thread(target=kill)
    killer.start()
    for start in range(0, SIZE, MIB):
        file.write(content)
        if start == 4 * MIB:
            writing.set()
    file.flush()
    killer.join()
    host.wait_restarted(killed)
    file.seek(0)
    for _ in range(0, SIZE, MIB):
        assert file.read(MIB) == content
    connector.disconnect_volume(properties(volume), device)
    assert control.store.get(volume).record.owner is None


def test_running_qemu_sees_an_extension_of_an_idle_disk(
    control: Volumes, host: Host, short_path: pathlib.Path
) -> None:
    volume = control.create(SIZE, host)
    calls = VolumeCalls(str(host.path / "volumes.sock"))
    opened = calls.open(volume)
    node = {
        "driver": "nbd",
        "server": {"type": "unix", "path": opened.socket},
        "export": opened.export,
        "reconnect-delay": 300,
        "node-name": "storage",
    }
    device = {"driver": "virtio-blk-pci", "drive": "storage", "id": f"ua-{volume}"}
    qemu = Qemu(short_path, "-blockdev", json.dumps(node), "-device", json.dumps(device))
    try:
        assert calls.status(volume)["clients"] == 1
        control.store.resize(volume, 2 * SIZE)
        call(host, "resize", volume, size_bytes=2 * SIZE)
        extension = OnlineExtension(
            calls,
            volume,
            volume,
            60.0,
            monitor=lambda domain, command, flags: json.dumps(qemu.execute(json.loads(command))),
        )
        extension.wait_for_size(2 * SIZE)
        extension.reconnect(NovaHost(), INSTANCE)
        grow = {
            "execute": "block_resize",
            "arguments": {"node-name": "storage", "size": 2 * SIZE},
        }
        assert qemu.execute(grow) == {"return": {}}
    finally:
        qemu.stop()
    calls.close(volume)
    assert control.store.get(volume).record.owner is None


def test_volume_that_a_guest_uses_is_not_closed_under_it(
    control: Volumes, host: Host, connector: Any, short_path: pathlib.Path
) -> None:
    volume = control.create(SIZE, host)
    device = connector.connect_volume(properties(volume))
    other = connector.connect_volume(properties(volume))
    connector.disconnect_volume(properties(volume), device)
    assert other["path"].read(512) == bytes(512)
    connector.disconnect_volume(properties(volume), other)
    assert control.store.get(volume).record.owner is None


def test_properties_name_the_host(host: Host, connector: Any) -> None:
    assert connector.get_connector_properties("sudo") == {"acstor_host": host.name}


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("qmp")
