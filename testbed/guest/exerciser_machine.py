"""A running exerciser and its disks, as libvirt gives them to QEMU."""

import contextlib
import dataclasses
import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from testbed import exception, processes
from testbed.accelerator import Accelerator
from testbed.guest.build import GuestImage
from testbed.guest.exerciser import INIT
from testbed.guest.exerciser_console import ExerciserConsole
from testbed.guest.monitor import Monitor

Connection = TypeVar("Connection")

MEMORY_MIB = 384
START_TIMEOUT_S = 30.0
BOOT_TIMEOUT_S = 180.0
#: Seconds for which QEMU waits for a server that is gone: the default of the volume driver.
RECONNECT_DELAY_S = 300


@dataclasses.dataclass(frozen=True)
class GuestDisk:
    """A disk of a guest.

    :param name: its serial number, at most 20 characters: ``$(disk NAME)`` in the guest.
    :param node: of QEMU's ``blockdev-add``, without a name.
    """

    name: str
    node: Mapping[str, Any]


def nbd_disk(name: str, socket_path: str, export: str) -> GuestDisk:
    """Return a disk behind an NBD server, as libvirt 9.2 and newer make QEMU open it.

    With Nova's cache mode of network disks (``none``), trim, and reconnection.
    """
    server = {"type": "unix", "path": socket_path}
    node = {"driver": "nbd", "server": server, "export": export, **_options()}
    return GuestDisk(name, {**node, "reconnect-delay": RECONNECT_DELAY_S})


def file_disk(name: str, path: pathlib.Path, image_format: str = "raw") -> GuestDisk:
    """Return a disk that is a local file, as Nova's libvirt makes QEMU open it: direct I/O."""
    file = {"driver": "file", "filename": str(path), "aio": "native", **_options()}
    if image_format == "raw":
        return GuestDisk(name, file)
    return GuestDisk(name, {"driver": image_format, "file": file, **_options()})


def _options() -> dict[str, Any]:
    return {"discard": "unmap", "cache": {"direct": True, "no-flush": False}}


class ExerciserMachine:
    """A guest that has booted. A context: QEMU ends with it.

    :param directory: for sockets and logs; its path is short. Made where it is missing.
    """

    def __init__(
        self,
        image: GuestImage,
        accelerator: Accelerator,
        directory: pathlib.Path,
        disks: Sequence[GuestDisk] = (),
        memory_mib: int = MEMORY_MIB,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        for name in ("monitor", "port"):
            (directory / name).unlink(missing_ok=True)
        self._process = self._start_qemu(image, accelerator, memory_mib)
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_qemu)
            self._monitor = self._connected(Monitor, "monitor")
            stack.callback(self._monitor.close)
            self.console = self._connected(ExerciserConsole, "port")
            stack.callback(self.console.close)
            for disk in disks:
                self.attach(disk)
            self._monitor.execute("cont")
            self.console.wait_ready(BOOT_TIMEOUT_S)
            self._parts = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Return the process id of QEMU."""
        return self._process.pid

    def attach(self, disk: GuestDisk) -> None:
        """Attach a disk; a guest that runs finds it some moments later (:meth:`wait_disk`)."""
        node = f"node-{disk.name}"
        self._monitor.execute("blockdev-add", **disk.node, **{"node-name": node})
        device = {"driver": "virtio-blk-pci", "id": f"disk-{disk.name}", "serial": disk.name}
        self._monitor.execute("device_add", **device, drive=node, **{"write-cache": "on"})

    def wait_disk(self, name: str) -> None:
        """Wait until the guest sees a disk."""
        self.console.run(f"for i in $(seq 300); do disk {name} && exit; sleep 0.1; done; exit 1")

    def detach(self, name: str) -> None:
        """Take a disk from the guest and close it."""
        self._monitor.execute("device_del", id=f"disk-{name}")
        self._monitor.wait_event("DEVICE_DELETED", device=f"disk-{name}")
        self._monitor.execute("blockdev-del", **{"node-name": f"node-{name}"})

    def kernel_log(self, lines: int = 15) -> str:
        """Return the end of what the guest's kernel printed."""
        with contextlib.suppress(OSError):
            text = (self._directory / "serial.log").read_text(errors="replace")
            return "\n".join(text.strip().splitlines()[-lines:])
        return ""

    def kill(self) -> None:
        """End QEMU with SIGKILL: to the guest a power cut. Idempotent.

        What the guest wrote to its port before is in the console's lines.
        """
        self._end_qemu()
        self.console.read_rest()
        self._parts.close()

    def _start_qemu(
        self, image: GuestImage, accelerator: Accelerator, memory_mib: int
    ) -> subprocess.Popen[bytes]:
        directory = self._directory
        command = [
            processes.require("qemu-system-x86_64"),
            *accelerator.qemu_arguments,
            *("-M", "pc", "-m", str(memory_mib), "-smp", "1", "-S"),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
            *("-append", f"console=ttyS0 root=/dev/vda ro init={INIT} panic=-1"),
            *("-blockdev", f"driver=file,filename={image.disk},node-name=root,read-only=on"),
            *("-device", "virtio-blk-pci,drive=root,id=disk-root,serial=root"),
            *("-object", "rng-random,id=rng,filename=/dev/urandom"),
            *("-device", "virtio-rng-pci,rng=rng", "-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=port,path={directory}/port,server=on,wait=off"),
            *("-device", "virtserialport,chardev=port,name=acstor"),
            *("-serial", f"file:{directory}/serial.log"),
            *("-qmp", f"unix:{directory}/monitor,server=on,wait=off"),
        ]
        with (directory / "qemu.log").open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _connected(self, connect: Callable[[pathlib.Path], Connection], name: str) -> Connection:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return connect(self._directory / name)
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = (self._directory / "qemu.log").read_text(errors="replace")
                    raise exception.NotReadyError(f"QEMU does not start: {error}; {log}") from error
            time.sleep(processes.POLL_INTERVAL_S)

    def _end_qemu(self) -> None:
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)
