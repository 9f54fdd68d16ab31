"""Assumptions of the volume driver about Nova; each test has the remedy where a release differs.

The page is ``doc/source/contributor/nova-volumes.rst``.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from lxml import etree
from nova import exception as nova_exception
from nova.objects import migrate_data
from nova.virt.libvirt import config as nova_config
from nova.virt.libvirt import driver as nova_driver
from nova.virt.libvirt import guest as nova_guest
from nova.virt.libvirt import host as nova_host
from nova.virt.libvirt import migration
from nova.virt.libvirt.volume import volume as nova_volume

from acstor import exception
from acstor.drivers.nova.volumes import disk_xml, registration
from acstor.drivers.nova.volumes.volume_driver import LibvirtAcstorVolumeDriver
from testbed.doubles.volume_socket import MemoryVolumeSocket
from tests.unit.drivers.conftest import VOLUME
from tests.unit.drivers.nova.volumes.conftest import (
    DISK_INFO,
    INSTANCE,
    SOCKET,
    Host,
    connected,
    connection,
)

LIVE_DISK = f"""
<disk type='network' device='disk'>
  <driver name='qemu' type='raw' cache='none' discard='unmap'/>
  <source protocol='nbd' name='{VOLUME}' index='1'>
    <host transport='unix' socket='{SOCKET}'/>
    <reconnect delay='300'/>
  </source>
  <backingStore/>
  <target dev='vdb' bus='virtio'/>
  <serial>{VOLUME}</serial>
  <alias name='ua-{VOLUME}'/>
  <address type='pci' domain='0x0000' bus='0x00' slot='0x06' function='0x0'/>
</disk>
"""
"""Disk of a running domain as libvirt 11.3 describes it."""


def names(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def parsed(xml: str) -> Any:
    disk = nova_config.LibvirtConfigGuestDisk()
    disk.parse_str(xml)
    return disk


def volume_config(libvirt_driver: Any) -> Callable[[Any, Any], Any]:
    """Return Nova's maker of a disk's configuration; before 34 it takes the instance first."""
    make = libvirt_driver._get_volume_config
    return functools.partial(make, INSTANCE) if "instance" in names(make) else make


@pytest.fixture(autouse=True)
def _registered() -> None:
    registration.register()


# What is registered


def test_volume_types_are_a_dictionary_of_dotted_paths() -> None:
    known = nova_driver.VOLUME_DRIVERS
    assert isinstance(known, dict), "registration.py adds a key: find where Nova 35+ keeps them"
    assert known["nfs"].count(".") >= 3
    assert known["acstor"] == registration.VOLUME_DRIVER


def test_nova_makes_the_driver_with_its_host_and_keeps_it(libvirt_driver: Any, host: Host) -> None:
    made = libvirt_driver._get_volume_driver(connection())
    assert isinstance(made, LibvirtAcstorVolumeDriver)
    assert made.host is host
    assert libvirt_driver._get_volume_driver(connection()) is made


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("__init__", ["self", "host", "is_block_dev"]),
        ("get_config", ["self", "connection_info", "disk_info"]),
        ("connect_volume", ["self", "connection_info", "instance"]),
        ("disconnect_volume", ["self", "connection_info", "instance", "force"]),
        ("extend_volume", ["self", "connection_info", "instance", "requested_size"]),
    ],
)
def test_base_class_has_the_methods_that_are_overridden(method: str, wanted: list[str]) -> None:
    base = nova_volume.LibvirtBaseVolumeDriver
    found = names(inspect.unwrap(getattr(base, method)))
    assert found == wanted, f"{method} of the base class changed: change the volume driver's"
    if method != "__init__":
        assert names(getattr(LibvirtAcstorVolumeDriver, method)) == wanted
    methods = {name for name in vars(base) if not name.startswith("_")}
    assert methods == {"get_config", "connect_volume", "disconnect_volume", "extend_volume"}, (
        "the base class has a method that the volume driver does not know"
    )


def test_host_and_guest_have_what_the_driver_asks_for() -> None:
    assert names(nova_host.Host.has_min_version) == ["self", "lv_ver", "hv_ver", "hv_type"]
    assert names(nova_host.Host.get_guest) == ["self", "instance"]
    domain = object()
    assert nova_guest.Guest(domain)._domain is domain, "online_extend.py asks the domain itself"


# The disk's XML


def test_stock_nova_still_needs_the_wrap() -> None:
    """Compare and then remove disk_xml.py when this fails: Nova has learnt unix sockets."""
    disk = nova_config.LibvirtConfigGuestDisk
    stock_parse = inspect.unwrap(disk.parse_dom)
    stock_format = inspect.unwrap(disk.format_dom)
    read = disk()
    stock_parse(read, etree.fromstring(LIVE_DISK))
    with pytest.raises(TypeError):
        stock_format(read)


def test_disk_that_was_read_is_written_with_socket_and_delay() -> None:
    found = etree.fromstring(parsed(LIVE_DISK).to_xml())
    source = found.find("source")
    assert source.attrib == {"protocol": "nbd", "name": VOLUME}
    (host,) = source.findall("host")
    assert dict(host.attrib) == {"transport": "unix", "socket": SOCKET}
    assert source.find("reconnect").get("delay") == "300"
    again = parsed(etree.tostring(found).decode())
    assert again.to_xml() == parsed(LIVE_DISK).to_xml()


def test_socket_without_reconnect_is_kept_without() -> None:
    """As libvirt before 9.2 gives it."""
    xml = LIVE_DISK.replace("<reconnect delay='300'/>", "")
    source = etree.fromstring(parsed(xml).to_xml()).find("source")
    assert [child.tag for child in source] == ["host"]


@pytest.mark.parametrize(
    "xml",
    [
        "<disk type='file' device='disk'><source file='/a'/><target dev='vda' bus='ide'/></disk>",
        "<disk type='block' device='lun'><source dev='/dev/sda'/><target dev='sda' bus='scsi'/>"
        "</disk>",
        "<disk type='network' device='disk'><source protocol='nbd' name='x'>"
        "<host name='127.0.0.1' port='10809'/></source><target dev='vda' bus='virtio'/></disk>",
        "<disk type='network' device='disk'><source protocol='rbd' name='p/v'>"
        "<host name='a' port='1'/><host name='b' port='2'/></source>"
        "<target dev='vda' bus='virtio'/></disk>",
        "<disk type='network' device='disk'><source protocol='rbd' name='p/v'/>"
        "<target dev='vda' bus='virtio'/></disk>",
    ],
)
def test_other_disks_are_read_and_written_as_before(xml: str) -> None:
    disk = nova_config.LibvirtConfigGuestDisk
    stock = disk()
    stock_xml = etree.fromstring(xml)
    inspect.unwrap(disk.parse_dom)(stock, stock_xml)
    expected = etree.tostring(inspect.unwrap(disk.format_dom)(stock))
    ours = parsed(xml)
    assert vars(ours).keys() == vars(stock).keys()
    assert etree.tostring(ours.format_dom()) == expected


def test_registering_again_wraps_once_and_keeps_the_class() -> None:
    disk = nova_config.LibvirtConfigGuestDisk
    parse, form = disk.parse_dom, disk.format_dom
    registration.register()
    registration.register()
    assert (disk.parse_dom, disk.format_dom) == (parse, form)
    assert nova_config.LibvirtConfigGuestDisk is disk
    assert not hasattr(parse.__wrapped__, "__wrapped__")
    assert isinstance(parsed(LIVE_DISK), disk)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda owner: setattr(owner, "format_dom", lambda self, extra: None),
        lambda owner: delattr(owner, "parse_dom"),
    ],
)
def test_other_class_is_refused_with_a_clear_word(
    monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    other = type(
        "LibvirtConfigGuestDisk",
        (),
        {"parse_dom": lambda self, xmldoc: None, "format_dom": lambda self: None},
    )
    spoil(other)
    before = dict(vars(other))
    monkeypatch.setattr(nova_config, "LibvirtConfigGuestDisk", other)
    with pytest.raises(exception.UnsupportedError, match=r"_dom"):
        disk_xml.install()
    assert dict(vars(other)) == before


def test_missing_places_are_refused_with_a_clear_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nova_driver, "VOLUME_DRIVERS", ())
    with pytest.raises(exception.UnsupportedError, match="VOLUME_DRIVERS"):
        registration.register()
    monkeypatch.undo()
    monkeypatch.delattr(nova_config, "LibvirtConfigGuestDisk")
    with pytest.raises(exception.UnsupportedError, match="LibvirtConfigGuestDisk"):
        registration.register()


@pytest.mark.parametrize("writes_reconnect", [False, True])
def test_host_that_nova_has_written_itself_is_not_written_twice(
    monkeypatch: pytest.MonkeyPatch, writes_reconnect: bool
) -> None:
    """As a Nova may that has learnt unix sockets."""

    class Disk:
        source_type = "network"
        source_socket = SOCKET
        source_reconnect_delay = 300

        def parse_dom(self, xmldoc: Any) -> None:
            pass

        def format_dom(self) -> Any:
            disk = etree.fromstring(LIVE_DISK)
            if not writes_reconnect:
                source = disk.find("source")
                source.remove(source.find("reconnect"))
            return disk

    monkeypatch.setattr(nova_config, "LibvirtConfigGuestDisk", Disk)
    disk_xml.install()
    source = Disk().format_dom().find("source")
    assert [child.tag for child in source] == ["host", "reconnect"]
    assert source.find("reconnect").get("delay") == "300"


# How Nova uses them


def test_nova_configures_the_disk_with_its_cache_mode(libvirt_driver: Any) -> None:
    libvirt_driver.disk_cachemodes = {"network": "writeback"}
    config = volume_config(libvirt_driver)(connected(), DISK_INFO)
    disk = etree.fromstring(config.to_xml())
    assert disk.get("type") == "network"
    assert disk.find("driver").get("cache") == "writeback"
    assert disk.find("source/host").get("socket") == SOCKET


def test_nova_connects_and_disconnects_through_the_driver(
    libvirt_driver: Any, volume_socket: MemoryVolumeSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libvirt_driver, "_attach_encryptor", lambda *_: None)
    monkeypatch.setattr(libvirt_driver, "_detach_encryptor", lambda *_, **__: None)
    info = connection()
    libvirt_driver._connect_volume(None, info, INSTANCE)
    assert info["data"]["socket"] == SOCKET
    assert VOLUME in volume_socket.open
    libvirt_driver._disconnect_volume(None, info, INSTANCE)
    assert not volume_socket.open


def test_detach_gives_libvirt_a_disk_that_it_can_find(host: Host, libvirt_driver: Any) -> None:
    host.domain.xml = f"<domain type='kvm'><devices>{LIVE_DISK}</devices></domain>"
    guest = host.get_guest(INSTANCE)
    device = libvirt_driver._get_guest_disk_device(guest, "vdb", volume_uuid=VOLUME)
    assert device is not None, "the disk is found by its alias, or by its target"
    guest.detach_device(device, live=False)
    (xml,) = host.domain.detached
    found = etree.fromstring(xml)
    assert found.find("target").get("dev") == "vdb"
    assert found.find("source/host").get("socket") == SOCKET


def test_migration_writes_the_destinations_source_into_the_disk(libvirt_driver: Any) -> None:
    there = connection(socket="/other/there.sock", export="there", reconnect_delay=60)
    bdm = migrate_data.LibvirtLiveMigrateBDMInfo(
        serial=VOLUME, bus="virtio", dev="vdb", type="disk"
    )
    bdm.connection_info = there
    document = etree.fromstring(f"<domain><devices>{LIVE_DISK}</devices></domain>")
    updated = migration._update_volume_xml(
        document,
        types.SimpleNamespace(bdms=[bdm]),
        INSTANCE,
        libvirt_driver._get_volume_config,
    )
    (disk,) = updated.findall("./devices/disk")
    (source,) = disk.findall("source")
    assert dict(source.attrib) == {"protocol": "nbd", "name": "there"}
    (host,) = source.findall("host")
    assert host.get("socket") == "/other/there.sock"
    assert source.find("reconnect").get("delay") == "60"
    assert disk.find("address").get("slot") == "0x06"
    assert disk.findtext("serial") == VOLUME


def test_extension_that_is_not_supported_is_said_so(libvirt_driver: Any, host: Host) -> None:
    host.libvirt_version = (9, 0, 0)
    with pytest.raises(nova_exception.ExtendVolumeNotSupported):
        libvirt_driver.extend_volume(None, connected(), INSTANCE, 1 << 30)


def test_extension_finds_the_disk_by_its_serial(host: Host) -> None:
    """Nova looks for ``device_path`` first: connection information must not have it."""
    host.domain.xml = f"<domain type='kvm'><devices>{LIVE_DISK}</devices></domain>"
    disks = host.get_guest(INSTANCE).get_all_disks()
    assert [(disk.serial, disk.target_dev) for disk in disks] == [(VOLUME, "vdb")]
    assert "device_path" not in connected()["data"]


def test_stock_nova_still_cannot_resize_encrypted_disks(
    libvirt_driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the volume driver extend encrypted volumes when this fails: Nova has learnt it."""
    monkeypatch.setattr(nova_driver.images, "privileged_qemu_img_info", None)
    with pytest.raises(nova_exception.DiskNotFound):
        libvirt_driver._resize_attached_encrypted_volume(
            None, 1 << 30, None, INSTANCE, connected(), {"provider": "luks"}
        )
