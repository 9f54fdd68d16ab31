"""Health of the chunk store's disk, as the kernel and the disk itself report it.

The disk is asked by ``smartctl`` (smartmontools), where that is installed and may open the device:
what it does not tell is not known, and nobody is bothered. Both change over weeks, so they are
asked for at long intervals, in a thread of their own, since a disk that fails may let a question
wait.

The data plane's own failed reads and writes are the other half: see
:mod:`acstor.telemetry.data_plane_readings`.
"""

import logging
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any

from acstor import untrusted_json
from acstor.telemetry import block_devices
from acstor.telemetry.block_devices import BlockDevice
from acstor.telemetry.host_state_details import DiskHealth

LOG = logging.getLogger(__name__)

PROGRAM = "smartctl"
PROGRAM_TIMEOUT = 15.0
"""Seconds that the program may take for one device."""
_REPORT_LENGTH_MAX = 1 << 20

Ask = Callable[[BlockDevice], DiskHealth | None]


class DiskWatch:
    """Samples the health of the disk under a path now and then.

    :param path: of the chunk store.
    :param interval: seconds between two looks.
    :param devices: returns the devices under a path.
    :param asks: each says what it knows of a device.
    """

    def __init__(
        self,
        path: str,
        interval: float,
        *,
        devices: Callable[[str], list[BlockDevice]] = block_devices.devices_under,
        asks: tuple[Ask, ...] | None = None,
    ) -> None:
        self._path = path
        self._interval = interval
        self._devices = devices
        self._asks = asks if asks is not None else (block_devices.health, ask_disk)
        self._health: DiskHealth | None = None
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk-watch", daemon=True)

    @property
    def health(self) -> DiskHealth | None:
        """Health at the last check; None: not known."""
        return self._health

    def start(self) -> None:
        """Start to look."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop, within ``timeout`` seconds; a look that still waits for the disk is left alone."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def check(self) -> None:
        """Ask the devices once."""
        told = [ask(device) for device in self._devices(self._path) for ask in self._asks]
        found = worst(*told)
        if found is not None and not found.is_healthy and found != self._health:
            LOG.warning("the disk under %s says that it fails: replace it", self._path)
        self._health = found

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self.check()
            except Exception:
                LOG.exception("the disk under %s cannot be looked at", self._path)
            self._is_stopping.wait(self._interval)


def worst(*told: DiskHealth | None) -> DiskHealth | None:
    """Return what several sources say together; None: none of them says anything."""
    known = [each for each in told if each is not None]
    if not known:
        return None
    wears = [each.wear for each in known if each.wear is not None]
    return DiskHealth(all(each.is_healthy for each in known), max(wears, default=None))


def ask_disk(device: BlockDevice, program: str = PROGRAM) -> DiskHealth | None:
    """Return what a disk says of itself (SMART); None: it cannot be asked, or does not say."""
    found = shutil.which(program)
    if found is None or not device.is_lowest:
        return None
    # Of a device under a folder of /dev, sysfs writes the slash as "!".
    node = "/dev/" + device.name.replace("!", "/")
    try:
        result = subprocess.run(
            [found, "--json", "--health", "--attributes", node],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROGRAM_TIMEOUT,
            check=False,  # the bits of its status are in the report too
        )
    except (OSError, subprocess.SubprocessError) as error:
        LOG.debug("%s of %s: %s", program, node, error)
        return None
    return parse_report(result.stdout[:_REPORT_LENGTH_MAX])


def parse_report(report: bytes) -> DiskHealth | None:
    """Return what a report of ``smartctl --json`` says; None: nothing, or it is none."""
    try:
        found = untrusted_json.load(report, "the report")
    except ValueError:
        return None
    passed = _at(found, "smart_status", "passed")
    percents = (
        _at(found, "nvme_smart_health_information_log", "percentage_used"),
        _at(found, "endurance_used", "current_percent"),
        _at(found, "scsi_percentage_used_endurance_indicator"),
    )
    # A disk may outlive what its maker promised: more than 100 is allowed (NVMe 2.0, 5.16.1.3).
    wears = [min(1.0, each / 100) for each in percents if type(each) is int and each >= 0]
    if not isinstance(passed, bool):
        return DiskHealth(True, max(wears)) if wears else None
    return DiskHealth(passed, max(wears, default=None))


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
