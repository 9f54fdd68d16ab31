import copy
import types
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from lxml import etree
from nova import exception as nova_exception
from oslo_config import cfg

from acstor.drivers.brick import options
from acstor.drivers.nova.volumes.volume_driver import LibvirtAcstorVolumeDriver
from testbed.doubles.volume_socket import MemoryVolumeSocket
from tests.unit.drivers.conftest import SIZE, VOLUME
from tests.unit.drivers.nova.volumes.conftest import (
    DISK_INFO,
    INSTANCE,
    SOCKET,
    Host,
    connected,
    connection,
)


@pytest.fixture
def driver(
    volume_socket: MemoryVolumeSocket, host: Host, libvirt_driver: Any
) -> LibvirtAcstorVolumeDriver:
    return LibvirtAcstorVolumeDriver(host)


def test_connecting_says_where_and_again_says_the_same(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    info = connection()
    driver.connect_volume(info, INSTANCE)
    assert info["data"]["socket"] == SOCKET
    assert info["data"]["export"] == VOLUME
    assert info["data"]["reconnect_delay"] == 300
    assert "device_path" not in info["data"]
    once = copy.deepcopy(info)
    driver.connect_volume(info, INSTANCE)
    assert info == once
    assert [call for call, _ in volume_socket.calls] == ["volume.open", "volume.open"]


def test_attachment_of_before_gives_way_to_the_present_one(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    """A hard reboot, or a start after one of the host: Nova has kept what it was told last."""
    info = connection(socket="/run/acstor/nbd/before.sock", export="before", reconnect_delay=300)
    driver.connect_volume(info, INSTANCE)
    config = driver.get_config(info, DISK_INFO)
    assert (config.source_name, config.source_socket) == (VOLUME, SOCKET)
    assert "before" not in config.to_xml()


def test_volume_is_opened_by_the_name_of_its_record_and_keeps_its_serial(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    """After a migration by copy the name is another one than Cinder's id."""
    name = "00000000-0000-0000-0000-00000000000a"
    volume_socket.sizes = {name: SIZE}
    info = connection(name_id=name)
    driver.connect_volume(info, INSTANCE)
    assert list(volume_socket.open) == [name]
    assert info["data"]["export"] == name
    assert driver.get_config(info, DISK_INFO).serial == VOLUME
    driver.disconnect_volume(info, INSTANCE)
    assert not volume_socket.open


def test_destination_of_a_migration_is_standby(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    driver.connect_volume(connection(role="standby"), INSTANCE)
    assert volume_socket.open[VOLUME] == "standby"


def test_volume_of_another_host_is_not_attached(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    volume_socket.elsewhere.add(VOLUME)
    info = connection()
    with pytest.raises(nova_exception.VolumeAttachFailed, match="owned by h2"):
        driver.connect_volume(info, INSTANCE)
    assert "socket" not in info["data"]


def test_no_data_plane_is_said_with_what_to_do(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    volume_socket.stop()
    with pytest.raises(nova_exception.VolumeAttachFailed, match="acstor-dataplane"):
        driver.connect_volume(connection(), INSTANCE)
    with pytest.raises(nova_exception.VolumeDetachFailed, match="acstor-dataplane"):
        driver.disconnect_volume(connected(), INSTANCE)
    driver.disconnect_volume(connected(), INSTANCE, force=True)


def test_disconnecting_twice_is_disconnected(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    info = connection()
    driver.connect_volume(info, INSTANCE)
    driver.disconnect_volume(info, INSTANCE)
    driver.disconnect_volume(info, INSTANCE)
    assert not volume_socket.open


def test_force_closes_under_a_client(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    driver.connect_volume(connection(), INSTANCE)
    volume_socket.clients[VOLUME] = 1
    driver.disconnect_volume(connected(), INSTANCE, force=True)
    assert not volume_socket.open


def test_configuration_is_a_function_of_the_connection_alone(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket
) -> None:
    volume_socket.stop()  # whoever asked it would fail
    info = connected()
    before = copy.deepcopy(info)
    disk = etree.fromstring(driver.get_config(info, DISK_INFO).to_xml())
    assert info == before
    for element in disk.iter():  # Nova writes white space between elements
        element.tail = None
        element.text = (element.text or "").strip() or None
    assert etree.tostring(disk).decode() == (
        '<disk type="network" device="disk"><driver name="qemu" type="raw" cache="none" '
        f'discard="unmap"/><alias name="ua-{VOLUME}"/><source protocol="nbd" name="{VOLUME}">'
        f'<host transport="unix" socket="{SOCKET}"/><reconnect delay="300"/></source>'
        f'<target dev="vdb" bus="virtio"/><serial>{VOLUME}</serial></disk>'
    )


def test_limits_of_the_front_end_and_read_only_are_nova_s(
    driver: LibvirtAcstorVolumeDriver,
) -> None:
    info = connected() | {"multiattach": True}
    info["data"]["qos_specs"] = {"total_iops_sec": "100", "read_bytes_sec_max": "5"}
    info["data"]["access_mode"] = "ro"
    disk = etree.fromstring(driver.get_config(info, DISK_INFO).to_xml())
    assert disk.findtext("iotune/total_iops_sec") == "100"
    assert disk.findtext("iotune/read_bytes_sec_max") == "5"
    assert disk.find("readonly") is not None
    assert disk.find("shareable") is not None


def test_encrypted_volume_names_the_secret(driver: LibvirtAcstorVolumeDriver, host: Host) -> None:
    secret = "00000000-0000-0000-0000-00000000005e"
    host.secret = types.SimpleNamespace(UUIDString=lambda: secret)
    disk = etree.fromstring(driver.get_config(connected(encrypted=True), DISK_INFO).to_xml())
    assert disk.find("encryption").get("format") == "luks"
    assert disk.find("encryption/secret").get("uuid") == secret


def test_volume_that_was_not_connected_has_no_configuration(
    driver: LibvirtAcstorVolumeDriver,
) -> None:
    with pytest.raises(nova_exception.InternalError, match="not connected"):
        driver.get_config(connection(), DISK_INFO)


def test_extension_of_a_stopped_guest_waits_for_the_data_plane_only(
    driver: LibvirtAcstorVolumeDriver, volume_socket: MemoryVolumeSocket, host: Host
) -> None:
    driver.connect_volume(connection(), INSTANCE)
    host.domain.is_running = False
    volume_socket.sizes[VOLUME] = 2 * SIZE
    assert driver.extend_volume(connected(), INSTANCE, 2 * SIZE) == 2 * SIZE


@pytest.fixture
def short_extension(driver: LibvirtAcstorVolumeDriver) -> Iterator[None]:
    cfg.CONF.set_override("volume_extend_timeout", 1.0, group=options.GROUP)
    yield
    cfg.CONF.clear_override("volume_extend_timeout", group=options.GROUP)


@pytest.mark.usefixtures("short_extension")
def test_extension_that_the_data_plane_does_not_know_fails(
    driver: LibvirtAcstorVolumeDriver,
) -> None:
    driver.connect_volume(connection(), INSTANCE)
    with pytest.raises(nova_exception.VolumeExtendFailed, match="cinder-volume"):
        driver.extend_volume(connected(), INSTANCE, 2 * SIZE)


@pytest.mark.parametrize("case", ["old libvirt", "encrypted"])
def test_extension_that_nova_cannot_do_is_not_implemented(
    volume_socket: MemoryVolumeSocket,
    libvirt_driver: Any,
    caplog: pytest.LogCaptureFixture,
    case: str,
) -> None:
    host = Host((9, 0, 0) if case == "old libvirt" else (11, 3, 0))
    driver = LibvirtAcstorVolumeDriver(host)
    with pytest.raises(NotImplementedError):
        driver.extend_volume(connected(encrypted=case == "encrypted"), INSTANCE, 2 * SIZE)
    assert VOLUME in caplog.text
    assert ("9.2" in caplog.text) == (case == "old libvirt")
