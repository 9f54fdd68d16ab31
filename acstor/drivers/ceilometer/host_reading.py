"""One reading of a host's interfaces and of what the data plane moved, for Ceilometer's pollsters.

Nothing of Ceilometer is needed here.
"""

import pathlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from acstor import exception
from acstor.telemetry import data_plane_readings
from acstor.telemetry.traffic import InterfaceCounters, Interfaces, MovedBytes

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
METRICS_SIZE_MAX = 16 << 20


@dataclass(frozen=True)
class HostReading:
    """Readings of a host's network interfaces at one moment."""

    read_at: float
    """Monotonic seconds."""
    boot_id: str
    interfaces: Sequence[InterfaceCounters]
    is_moved_asked: bool
    moved: MovedBytes | None
    """None: not known, or not asked."""

    def metadata(self, host: str, interface: InterfaceCounters, counter: str) -> dict[str, Any]:
        """Return what goes with the sample of an interface.

        :param counter: ``received`` or ``sent``.
        """
        found: dict[str, Any] = {
            "host": host,
            "interface": interface.name,
            "index": interface.index,
            "interfaces": len(self.interfaces),
            "link_bytes_per_s": interface.link_bytes_per_s,
            "read_at": self.read_at,
            "boot_id": self.boot_id,
        }
        if self.is_moved_asked:
            found["moved_bytes"] = getattr(self.moved, counter) if self.moved else None
        return found


def read(
    interfaces: Interfaces,
    moved: Callable[[], MovedBytes | None] | None,
    clock: Callable[[], float] = time.monotonic,
) -> HostReading:
    """Read a host.

    :param moved: returns what the data plane moved; None: it is not asked.
    :raises OSError: when the interfaces cannot be read, or there are none.
    """
    found = interfaces.read(None)
    read_at = clock()
    if not found:
        raise OSError("no network interface to measure; name some in [acstor] interfaces")
    return HostReading(
        read_at,
        BOOT_ID.read_text().strip(),
        found,
        moved is not None,
        moved() if moved is not None else None,
    )


def moved_bytes(url: str, timeout: float, *, is_origin_remote: bool) -> MovedBytes | None:
    """Return what the agent's metrics say that the data plane moved; None: they do not.

    :param timeout: seconds.
    """
    if not url.startswith(("http://", "https://")):
        return None
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - checked above
            text = answer.read(METRICS_SIZE_MAX).decode()
        found = data_plane_readings.read(text, is_origin_remote=is_origin_remote)
    except (OSError, ValueError, exception.InvalidError, urllib.error.URLError):
        return None
    return found.moved if found is not None else None
