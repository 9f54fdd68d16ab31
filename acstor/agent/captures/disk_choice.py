"""Disks of a guest that versions are taken of, and the reason against each of the others."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acstor import exception
from acstor.agent.hypervisor.domain_xml import DiskPlace, Guest, GuestDisk

FORMATS = ("qcow2", "raw")
"""Formats of disks that can be read."""
_CONFIG_DRIVE = "disk.config"
_SWAP = "disk.swap"


@dataclass(frozen=True)
class DiskChoice:
    """Disks of a guest."""

    taken: tuple[GuestDisk, ...]
    left_out: Mapping[str, str]
    """By device, why it is not taken."""


def choose_disks(guest: Guest, devices: Sequence[str] | None) -> DiskChoice:
    """Return of which disks versions are taken.

    :param devices: those that are wanted; None: all that can be had.
    :raises NotFoundError: when the guest has no such disk.
    :raises UnsupportedError: when one that is wanted cannot be had, or none can.
    """
    found = {disk.device: disk for disk in guest.disks}
    for device in devices or ():
        if device not in found:
            raise exception.NotFoundError(f"server {guest.server} has no disk {device} here")
    wanted = [disk for disk in guest.disks if devices is None or disk.device in devices]
    reasons = {disk.device: reason_against(disk) for disk in wanted}
    left_out = {device: reason for device, reason in reasons.items() if reason is not None}
    taken = tuple(disk for disk in wanted if disk.device not in left_out)
    if (devices is not None and left_out) or not taken:
        told = "; ".join(f"{device}: {reason}" for device, reason in left_out.items())
        raise exception.UnsupportedError(
            f"no version can be taken of server {guest.server}: {told or 'it has no disk'}",
            hint="volumes have versions of their own; other disks need images_type = qcow2 or raw",
        )
    return DiskChoice(taken, left_out)


def reason_against(disk: GuestDisk) -> str | None:
    """Return why no version is taken of a disk, None where one is."""
    name = os.path.basename(disk.path or "")
    network = f"it is on a server ({disk.protocol or 'network'}), not on this host"
    rules = (
        (disk.volume is not None, "it is a volume: take a version of the volume"),
        (not disk.is_disk, "it is a CD-ROM or a floppy"),
        (name == _CONFIG_DRIVE, "it is the config drive, which Nova makes again"),
        (name == _SWAP, "it is swap, which nobody wants back"),
        (disk.is_encrypted, "it is encrypted, and its key is Nova's"),
        (disk.protocol == "rbd", "it is in Ceph (rbd): take a snapshot there"),
        (disk.place is DiskPlace.NETWORK, network),
        (disk.place is DiskPlace.BLOCK, "it is a block device (LVM): it has no file to read"),
        (disk.place is not DiskPlace.FILE or not disk.path, "it is in no file of this host"),
        (disk.format not in FORMATS, f"its format is {disk.format[:40]}, not qcow2 or raw"),
    )
    return next((reason for applies, reason in rules if applies), None)
