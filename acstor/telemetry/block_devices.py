"""Block devices under a file system, and what the kernel says of their health.

Source: ``Documentation/ABI`` of the kernel: ``/sys/dev/block``, ``slaves`` of stacked devices, and
by driver ``device/state`` (SCSI, NVMe), ``device/life_time`` and ``device/pre_eol_info`` (eMMC,
JESD84-B51 section 7.4), ``md/degraded``. A file system without a block device (tmpfs, overlayfs,
btrfs, a network) has none here, and nothing is said of it.
"""

import os
import pathlib
from dataclasses import dataclass, field

from acstor.telemetry.host_state_details import DiskHealth

DEVICES_MAX = 32
"""Devices in one stack that are looked at."""
_FILE_LENGTH_MAX = 256
_BAD_STATES = frozenset({"offline", "transport-offline", "dead"})
_PRE_END_OF_LIFE_URGENT = 3
_LIFE_TIME_EXCEEDED = 11  # eMMC counts tenths of the life from 1 on


@dataclass(frozen=True)
class BlockDevice:
    """One device of a stack."""

    name: str
    """The kernel's, as under ``/sys/block``."""
    is_lowest: bool
    """True if no other device is under it."""
    sysfs: pathlib.Path = field(compare=False)


def devices_under(path: str, sysfs: pathlib.Path = pathlib.Path("/sys")) -> list[BlockDevice]:
    """Return the devices under the file system of a path, from the top of the stack down.

    :param path: where nothing is yet, the folder above it counts.
    :param sysfs: where sysfs is mounted.
    """
    number = _device_number(path)
    if number is None:
        return []
    found: list[BlockDevice] = []
    waiting = [sysfs / "dev/block" / f"{os.major(number)}:{os.minor(number)}"]
    while waiting and len(found) < DEVICES_MAX:
        try:
            entry = waiting.pop(0).resolve(strict=True)
            if (entry / "partition").exists():
                entry = entry.parent
            slaves = entry / "slaves"
            under = sorted(slaves.iterdir()) if slaves.is_dir() else []
        except OSError:
            continue  # unplugged meanwhile
        waiting += under
        device = BlockDevice(entry.name, not under, entry)
        if device not in found:
            found.append(device)
    return found


def health(device: BlockDevice) -> DiskHealth | None:
    """Return what the kernel says of a device; None: it says nothing that tells."""
    is_bad = _text(device.sysfs / "device/state") in _BAD_STATES
    is_bad |= _number(device.sysfs / "md/degraded") > 0
    is_bad |= _number(device.sysfs / "device/pre_eol_info") == _PRE_END_OF_LIFE_URGENT
    # Two kinds of memory, each with its own estimate.
    words = _text(device.sysfs / "device/life_time").split()
    life = max((_parsed(word) for word in words), default=0)
    wear = min(life, _LIFE_TIME_EXCEEDED - 1) / 10 if 0 < life <= _LIFE_TIME_EXCEEDED else None
    return DiskHealth(not is_bad, wear) if is_bad or wear is not None else None


def _device_number(path: str) -> int | None:
    for place in (pathlib.Path(path), *pathlib.Path(path).parents):
        try:
            return os.stat(place).st_dev
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def _text(file: pathlib.Path) -> str:
    try:
        with file.open(encoding="ascii", errors="replace") as opened:
            return opened.read(_FILE_LENGTH_MAX).strip()
    except OSError:
        return ""


def _number(file: pathlib.Path) -> int:
    return _parsed(_text(file))


def _parsed(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        return 0
