import types
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from nova.virt.libvirt import driver as nova_driver
from nova.virt.libvirt import guest as nova_guest

from acstor.drivers.nova.volumes import registration
from testbed.doubles.volume_socket import MemoryVolumeSocket
from tests.unit.drivers.conftest import SIZE, VOLUME

SOCKET = f"/run/acstor/nbd/{VOLUME}.sock"
DISK_INFO = {"type": "disk", "dev": "vdb", "bus": "virtio"}
INSTANCE = types.SimpleNamespace(
    uuid="00000000-0000-0000-0000-0000000000a1", host="compute1", flavor=None, image_meta=None
)


class Domain:
    """Libvirt domain as Nova uses it; keeps what Nova gives to libvirt."""

    def __init__(self, xml: str = "<domain/>") -> None:
        self.xml = xml
        self.detached: list[str] = []
        self.is_running = True

    def XMLDesc(self, flags: int = 0) -> str:  # noqa: N802
        return self.xml

    def UUIDString(self) -> str:  # noqa: N802
        return str(INSTANCE.uuid)

    def isActive(self) -> bool:  # noqa: N802
        return self.is_running

    def detachDeviceFlags(self, xml: str, flags: int = 0) -> None:  # noqa: N802
        self.detached.append(xml)


class Host:
    """Double of ``nova.virt.libvirt.host.Host`` for a volume driver and Nova's driver."""

    def __init__(self, libvirt_version: tuple[int, int, int] = (11, 3, 0)) -> None:
        self.libvirt_version = libvirt_version
        self.secret: Any = None
        self.domain = Domain()

    def has_min_version(self, lv_ver: Any = None, hv_ver: Any = None, hv_type: Any = None) -> bool:
        return bool(lv_ver <= self.libvirt_version)

    def find_secret(self, usage_type: str, usage_id: str) -> Any:
        return self.secret

    def get_guest(self, instance: Any) -> Any:
        return nova_guest.Guest(self.domain)


def connection(**data: Any) -> dict[str, Any]:
    """Return connection information as the Cinder driver gives it and Nova completes it."""
    return {
        "driver_volume_type": "acstor",
        "serial": VOLUME,
        "data": {
            "volume_id": VOLUME,
            "size": SIZE,
            "role": "owner",
            "discard": True,
            "access_mode": "rw",
            "qos_specs": None,
            "encrypted": False,
            "admin_socket": None,
            **data,
        },
    }


def connected(**data: Any) -> dict[str, Any]:
    """Return connection information after the volume was connected."""
    return connection(socket=SOCKET, export=VOLUME, reconnect_delay=300, **data)


@pytest.fixture(autouse=True)
def libvirt_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nova 32 makes no guest without libvirt's binding; nothing of it is used here."""
    if nova_guest.libvirt is None:
        monkeypatch.setattr(nova_guest, "libvirt", types.ModuleType("libvirt"))


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def libvirt_driver(host: Host, volume_socket: MemoryVolumeSocket) -> Any:
    """Nova's own libvirt driver, with what needs a libvirt left out, after registration."""
    registration.register()
    driver = nova_driver.LibvirtDriver.__new__(nova_driver.LibvirtDriver)
    driver.volume_drivers = {}
    driver.disk_cachemodes = {}
    driver._host = host
    driver._get_mem_encryption_config = lambda *_: None  # Nova 32 and 33 ask it for each volume
    return driver
