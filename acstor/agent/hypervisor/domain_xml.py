"""Description of a guest by libvirt: its disks and what is beside them.

Source: https://libvirt.org/formatdomain.html; of Nova's part of it ``nova/virt/libvirt/config.py``
(``LibvirtConfigGuestMetaNova...``), which tells of extra specs and image properties since 2025.1.
"""

import dataclasses
import enum
import uuid
from collections.abc import Mapping
from xml.etree import ElementTree

from acstor import exception

XML_SIZE_MAX = 4 << 20
"""Longest description of a guest, characters."""
_AGENT_CHANNEL = "org.qemu.guest_agent.0"
_NOVA = "{http://openstack.org/xmlns/libvirt/nova/1.1}"


class DiskPlace(enum.StrEnum):
    """Place of a disk's content."""

    FILE = "file"
    """A file of this host."""
    BLOCK = "block"
    """A block device: LVM, iSCSI, a host device."""
    NETWORK = "network"
    """A server: Ceph, NBD, iSCSI."""
    OTHER = "other"


@dataclasses.dataclass(frozen=True, slots=True)
class GuestDisk:
    """A disk of a guest."""

    device: str
    """Name in the description, for example ``vda``."""
    place: DiskPlace
    path: str | None
    """File or block device."""
    format: str
    """``qcow2`` or ``raw``."""
    protocol: str = ""
    """Of :attr:`DiskPlace.NETWORK`, for example ``rbd``."""
    is_disk: bool = True
    """False of CD-ROMs and floppies."""
    is_encrypted: bool = False
    volume: str | None = None
    """UUID of the volume that Cinder made of it; None: it is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Guest:
    """A guest."""

    server: str
    """UUID, which Nova's server has, too."""
    is_active: bool
    """True if it runs, or is paused: its disks are open."""
    disks: tuple[GuestDisk, ...]
    nvram: str | None = None
    """File of its UEFI variables."""
    has_agent: bool = False
    """True if it has a channel for a guest agent."""
    is_agent_connected: bool = False
    """True if something in the guest has that channel open."""
    has_vtpm: bool = False
    extra_specs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of its flavor, as Nova tells; empty of releases of Nova that do not."""
    image_properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Likewise."""


def parse_guest(text: str, *, is_active: bool) -> Guest:
    """Return the guest that a description is of.

    :raises InvalidError: when it is malformed.
    """
    if len(text) > XML_SIZE_MAX:
        raise exception.InvalidError("the description of a guest is too long")
    try:
        # Of libvirt on this host, which expands no entity: the text is its own, not a project's.
        root = ElementTree.fromstring(text)  # noqa: S314
        server = str(uuid.UUID((root.findtext("uuid") or "").strip()))
    except (ElementTree.ParseError, ValueError) as error:
        raise exception.InvalidError(f"the description of a guest is malformed: {error}") from error
    disks = tuple(
        found for disk in root.iterfind("devices/disk") if (found := _disk_of(disk)) is not None
    )
    nvram = root.find("os/nvram")
    channel = root.find(f"devices/channel/target[@name='{_AGENT_CHANNEL}']")
    return Guest(
        server=server,
        is_active=is_active,
        disks=disks,
        nvram=None if nvram is None else _path_of_nvram(nvram),
        has_agent=channel is not None,
        is_agent_connected=channel is not None and channel.get("state") == "connected",
        has_vtpm=root.find("devices/tpm/backend[@type='emulator']") is not None,
        extra_specs=_named_texts(root, "extraSpecs", "extraSpec"),
        image_properties=_named_texts(root, "imageProperties", "property"),
    )


def _disk_of(disk: ElementTree.Element) -> GuestDisk | None:
    target, source = disk.find("target"), disk.find("source")
    device = None if target is None else target.get("dev")
    if not device:
        return None
    kind = disk.get("type", "")
    place = DiskPlace(kind) if kind in tuple(DiskPlace) else DiskPlace.OTHER
    driver = disk.find("driver")
    path = None if source is None else source.get("file") or source.get("dev")
    return GuestDisk(
        device=device,
        place=place,
        path=path,
        format="raw" if driver is None else driver.get("type", "raw"),
        protocol="" if source is None else source.get("protocol", ""),
        is_disk=disk.get("device", "disk") == "disk",
        is_encrypted=_is_encrypted(disk),
        volume=_volume_of(disk),
    )


def _is_encrypted(disk: ElementTree.Element) -> bool:
    """Return whether QEMU decrypts the disk: the element is in the disk or in its source."""
    return disk.find("encryption") is not None or disk.find("source/encryption") is not None


def _volume_of(disk: ElementTree.Element) -> str | None:
    """Return the volume's UUID, which Nova writes as the serial number of volumes only."""
    serial = (disk.findtext("serial") or "").strip()
    try:
        return str(uuid.UUID(serial)) if len(serial) == 36 else None
    except ValueError:
        return None


def _path_of_nvram(nvram: ElementTree.Element) -> str | None:
    source = nvram.find("source")  # since libvirt 8.5
    path = (nvram.text or "").strip() if source is None else source.get("file")
    return path or None


def _named_texts(root: ElementTree.Element, group: str, item: str) -> dict[str, str]:
    """Return the texts of elements by their names, wherever Nova has put the group."""
    return {
        name: (element.text or "").strip()
        for found in root.iterfind(f"metadata/{_NOVA}instance//{_NOVA}{group}")
        for element in found.iterfind(f"{_NOVA}{item}")
        if (name := element.get("name"))
    }
