"""Having the disk of a running guest see that its volume was extended.

QEMU learns the size of an NBD export when it connects and never again; Nova's ``blockResize`` fails
with "Cannot grow NBD nodes" until it has connected anew. So the data plane, told by Cinder, has
drained and closed the connection. QEMU notices that at its next request and connects at once; that
request waits for it (``<reconnect delay>``), so the size is known when it is answered. A guest that
uses the disk makes a request soon; for one that does not, QEMU is asked to read the first sector.

That question goes through libvirt's monitor passthrough: libvirt has no call that reads from a
network disk. libvirt marks the domain ``custom-monitor`` in its log; nothing else follows from it.
"""

import importlib
import json
import time
from collections.abc import Callable
from typing import Any, Protocol

from oslo_log import log as logging

from acstor import exception

LOG = logging.getLogger(__name__)

POLL_INTERVAL = 0.2
GUEST_WAIT = 3.0
"""Seconds in which a guest that uses the disk has made a request."""
SETTLED = 1.0
"""Seconds after which QEMU, seen connected, has taken note of the size."""
_READ = "read 0 512"

Clock = Callable[[], float]
MonitorCommand = Callable[[Any, str, int], str]
"""``libvirt_qemu.qemuMonitorCommand``: domain, command, flags; returns the answer."""


class StatusSource(Protocol):
    """Source of the data plane's status of a volume."""

    def status(self, volume_id: str) -> dict[str, Any]:
        """Return the status of an open volume."""
        ...


class OnlineExtension:
    """One extension of one volume on the host of its guest.

    :param volumes: the volume socket of this host.
    :param name: of the volume, for the data plane.
    :param volume_id: Cinder's, which the guest's disk is called after.
    :param timeout: seconds for both steps together.
    """

    def __init__(
        self,
        volumes: StatusSource,
        name: str,
        volume_id: str,
        timeout: float,
        *,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        monitor: MonitorCommand | None = None,
    ) -> None:
        self._volumes = volumes
        self._name = name
        self._volume_id = volume_id
        self._clock = clock
        self._sleep = sleep
        self._monitor = monitor
        self._deadline = clock() + timeout

    def wait_for_size(self, size_bytes: int) -> None:
        """Wait until the data plane serves the volume with at least ``size_bytes``.

        :raises DeadlineError: when it does not in time.
        """
        while int(self._volumes.status(self._name)["size_bytes"]) < size_bytes:
            self._pause(
                f"the data plane does not serve volume {self._volume_id} with {size_bytes} bytes",
                "look in cinder-volume's log why it could not tell the data plane; extend again",
            )

    def reconnect(self, host: Any, instance: Any, *, is_shared: bool = False) -> None:
        """Wait until QEMU has connected anew, and make it where the guest does not.

        A guest that does not run connects when it is started.

        :param host: ``nova.virt.libvirt.host.Host``.
        :param instance: Nova's instance.
        :param is_shared: other guests may have the volume too: a connection may be theirs.
        :raises DeadlineError: when QEMU does not in time.
        """
        domain = host.get_guest(instance)._domain
        if not domain.isActive():
            return
        patience = self._clock() + GUEST_WAIT
        while not self._is_connected():
            if self._clock() >= patience and self._read_in_qemu(domain):
                return
            self._pause(
                f"QEMU does not connect to volume {self._volume_id} anew",
                "use the disk in the guest, or stop and start the instance",
            )
        if not (is_shared and self._read_in_qemu(domain)):
            self._sleep(SETTLED)

    def _is_connected(self) -> bool:
        return int(self._volumes.status(self._name)["clients"]) > 0

    def _pause(self, problem: str, hint: str) -> None:
        if self._clock() >= self._deadline:
            raise exception.DeadlineError(problem, hint=hint)
        self._sleep(POLL_INTERVAL)

    def _read_in_qemu(self, domain: Any) -> bool:
        """Have QEMU read a sector of the disk; return whether it did and is connected.

        Where it cannot be asked, the guest will.
        """
        try:
            monitor = self._monitor or _libvirt_monitor()
            device = self._device(monitor, domain)
            command = {
                "execute": "human-monitor-command",
                "arguments": {"command-line": f'qemu-io -d {device} "{_READ}"'},
            }
            answer = monitor(domain, json.dumps(command), 0)
            LOG.debug("read of volume %s in QEMU: %s", self._volume_id, answer)
        except Exception as error:
            # libvirt's errors are not of one module: its binding may not be there at all.
            LOG.warning("QEMU was not asked to read volume %s: %s", self._volume_id, error)
            return False
        return self._is_connected()

    def _device(self, monitor: MonitorCommand, domain: Any) -> str:
        """Return how QEMU calls the front end of the volume's disk."""
        answer = json.loads(monitor(domain, json.dumps({"execute": "query-block"}), 0))
        for device in answer["return"]:
            name = str(device.get("qdev", ""))
            if self._volume_id in name:
                return name
        raise exception.NotFoundError(f"QEMU has no disk of volume {self._volume_id}")


def _libvirt_monitor() -> MonitorCommand:
    command: MonitorCommand = importlib.import_module("libvirt_qemu").qemuMonitorCommand
    return command
