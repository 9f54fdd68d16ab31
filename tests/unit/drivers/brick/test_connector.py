import time

import pytest

pytest.importorskip("os_brick", reason="os-brick is not installed")

from os_brick import exception as brick_exception
from os_brick.initiator import connector as brick

from acstor.drivers.brick import registration
from acstor.drivers.brick.connector import AcstorConnector
from acstor.drivers.brick.volume_file import VolumeFile
from testbed.doubles.memory_nbd_server import MemoryNbdServer
from testbed.doubles.volume_socket import MemoryVolumeSocket
from testbed.fixtures.conditions import PATIENCE
from tests.unit.drivers.conftest import SIZE, VOLUME

OTHER = "00000000-0000-0000-0000-000000000009"
PROPERTIES = {"volume_id": VOLUME, "access_mode": "rw", "encrypted": False, "role": "owner"}


@pytest.fixture
def connector(volume_socket: MemoryVolumeSocket, nbd: MemoryNbdServer) -> AcstorConnector:
    """Made by os-brick's factory, as Cinder does."""
    volume_socket.sockets[VOLUME] = nbd._path
    registration.register()
    found = brick.InitiatorConnector.factory(
        "acstor", "sudo", use_multipath=False, device_scan_attempts=3, conn={}, expect_raw_disk=True
    )
    assert isinstance(found, AcstorConnector)
    return found


def test_volume_is_a_file_while_it_is_connected(
    connector: AcstorConnector, volume_socket: MemoryVolumeSocket, nbd: MemoryNbdServer
) -> None:
    device = connector.connect_volume(PROPERTIES)
    file = device["path"]
    assert isinstance(file, VolumeFile)
    assert connector.check_valid_device(file)
    file.write(b"hello")
    assert connector.extend_volume(PROPERTIES) == SIZE
    connector.disconnect_volume(PROPERTIES, device)
    assert file.closed
    assert bytes(nbd.content[:5]) == b"hello"
    assert not volume_socket.open


def test_volume_is_opened_by_the_name_of_its_record(
    connector: AcstorConnector, volume_socket: MemoryVolumeSocket
) -> None:
    """After a migration by copy it is another one than Cinder's id."""
    device = connector.connect_volume(PROPERTIES | {"volume_id": OTHER, "name_id": VOLUME})
    assert list(volume_socket.open) == [VOLUME]
    connector.disconnect_volume(PROPERTIES | {"volume_id": OTHER, "name_id": VOLUME}, device)
    assert not volume_socket.open


def test_encrypted_volume_is_a_file_too(connector: AcstorConnector) -> None:
    properties = PROPERTIES | {"encrypted": True}
    device = connector.connect_volume(properties)
    assert isinstance(device["path"], VolumeFile)
    connector.disconnect_volume(properties, device)


def test_read_only_attachment_is_not_written(connector: AcstorConnector) -> None:
    device = connector.connect_volume(PROPERTIES | {"access_mode": "ro"})
    assert not device["path"].writable()
    connector.disconnect_volume(PROPERTIES, device)


def test_checking_keeps_the_position_and_sees_a_dead_volume(
    connector: AcstorConnector, nbd: MemoryNbdServer
) -> None:
    device = connector.connect_volume(PROPERTIES)
    file = device["path"]
    file.seek(77)
    assert connector.check_valid_device(file)
    assert file.tell() == 77
    nbd.on_request = lambda command: 5
    assert not connector.check_valid_device(file)
    nbd.on_request = lambda command: 0
    connector.disconnect_volume(PROPERTIES, device)
    assert not connector.check_valid_device(file)
    assert not connector.check_valid_device("/dev/sda")
    assert not connector.check_valid_device(None)


def test_disconnecting_leaves_the_volume_to_others_of_this_host(
    connector: AcstorConnector, volume_socket: MemoryVolumeSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acstor.drivers.brick.connector._CLOSE_WAIT", 0.2)
    device = connector.connect_volume(PROPERTIES)
    volume_socket.clients[VOLUME] = 1
    connector.disconnect_volume(PROPERTIES, device)
    assert VOLUME in volume_socket.open


def test_disconnecting_without_device_information_closes(
    connector: AcstorConnector, volume_socket: MemoryVolumeSocket
) -> None:
    connector.connect_volume(PROPERTIES)["path"].close()
    connector.disconnect_volume(PROPERTIES, None)
    assert not volume_socket.open


def test_writes_that_are_not_durable_fail_the_disconnection_unless_forced(
    connector: AcstorConnector, volume_socket: MemoryVolumeSocket, nbd: MemoryNbdServer
) -> None:
    nbd.on_request = lambda command: 5 if command == 3 else 0
    device = connector.connect_volume(PROPERTIES)
    device["path"].write(b"x")
    with pytest.raises(brick_exception.BrickException, match="cannot be closed"):
        connector.disconnect_volume(PROPERTIES, device)
    assert VOLUME in volume_socket.open
    device = connector.connect_volume(PROPERTIES)
    device["path"].write(b"x")
    connector.disconnect_volume(PROPERTIES, device, force=True, ignore_errors=True)
    assert not volume_socket.open


def test_failures_say_what_to_do(
    connector: AcstorConnector, volume_socket: MemoryVolumeSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume_socket.elsewhere.add(VOLUME)
    with pytest.raises(brick_exception.BrickException, match="owned by h2"):
        connector.connect_volume(PROPERTIES)
    volume_socket.elsewhere.clear()
    monkeypatch.setattr("acstor.drivers.brick.volume_file.IO_DEADLINE", 0.1)
    volume_socket.sockets[VOLUME] = "/nothing/here.sock"
    monkeypatch.setattr(
        "acstor.drivers.brick.connector.VolumeFile",
        lambda *args, **kwargs: VolumeFile(*args, io_deadline=0.1, **kwargs),
    )
    with pytest.raises(brick_exception.BrickException, match="socket_group"):
        connector.connect_volume(PROPERTIES)
    with pytest.raises(brick_exception.BrickException, match="names no volume"):
        connector.connect_volume({})


def test_properties_name_the_host_and_nothing_without_data_plane(
    connector: AcstorConnector,
    volume_socket: MemoryVolumeSocket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The others of os-brick start programs as root.
    ours = [found for found in brick.unix_connector_list if found == registration.CONNECTOR]
    base = brick.unix_connector_list[0]
    monkeypatch.setattr(brick, registration.LIST, [base, *ours])

    def properties() -> dict[str, object]:
        found: dict[str, object] = brick.get_connector_properties(
            "sudo", "192.0.2.1", False, False, host="compute1"
        )
        return found

    assert properties()["acstor_host"] == "h1"
    assert properties()["host"] == "compute1"
    volume_socket.stop()
    begun = time.monotonic()
    assert "acstor_host" not in properties()
    assert time.monotonic() - begun < 60 * PATIENCE


def test_it_is_no_place_of_this_host(connector: AcstorConnector) -> None:
    assert connector.get_volume_paths(PROPERTIES) == []
    assert connector.get_all_available_volumes() == []
    assert connector.get_search_path() is None  # type: ignore[func-returns-value]
