"""One guest under QEMU: a qcow2 overlay on a shared read-only disk, as Nova makes it.

The time of a boot is that from the request (before the overlay is made) to the login prompt on the
serial line. The serial line goes to a file, which is looked at every few milliseconds, and to a
socket, to which a person may connect.
"""

import dataclasses
import enum
import pathlib
import re
import subprocess
import time

from testbed import processes
from testbed.accelerator import Accelerator
from testbed.guest.build import GuestImage
from testbed.network import Namespace

MEMORY_MIB = 256
SERIAL_BYTES_MAX = 1 << 20
_CONTENT_LINE = re.compile(r"acstor-content-check (\S+) ([0-9a-f]{64})\b")


@dataclasses.dataclass(frozen=True)
class BackingDisk:
    """The read-only disk below a guest's overlay: what an approach gives to a host.

    :param location: a path, or a URI that QEMU opens, such as ``nbd://10.77.0.1:10809/guest``.
    """

    location: str
    format: str = "raw"


class GuestState(enum.StrEnum):
    """State of a guest.

    ::

        REQUESTED --> BOOTING --> LOGIN --> CHECKED
            |            |          |
            +------------+----------+--> FAILED
    """

    REQUESTED = "requested"  #: the overlay is being made
    BOOTING = "booting"  #: QEMU runs
    LOGIN = "login"  #: the login prompt was seen
    CHECKED = "checked"  #: and the tree that the guest read is that of the image
    FAILED = "failed"


TRANSITIONS: dict[GuestState, frozenset[GuestState]] = {
    GuestState.REQUESTED: frozenset({GuestState.BOOTING, GuestState.FAILED}),
    GuestState.BOOTING: frozenset({GuestState.LOGIN, GuestState.FAILED}),
    GuestState.LOGIN: frozenset({GuestState.CHECKED, GuestState.FAILED}),
    GuestState.CHECKED: frozenset(),
    GuestState.FAILED: frozenset(),
}


@dataclasses.dataclass(frozen=True)
class GuestRequest:
    """Request to boot a guest: its image, its disk, its place."""

    name: str
    image: GuestImage
    disk: BackingDisk
    accelerator: Accelerator
    namespace: Namespace | None
    directory: pathlib.Path  #: for the overlay, the serial line's log and socket
    check_content: bool = False
    memory_mib: int = MEMORY_MIB


class GuestMachine:
    """A guest from its request on. Never blocks: call :meth:`poll` until it is settled."""

    def __init__(self, request: GuestRequest, table: processes.ProcessTable) -> None:
        self.request = request
        self.state = GuestState.REQUESTED
        self.failure: str | None = None
        self.boot_time_s: float | None = None
        self.overlay_time_s: float | None = None
        self.process: processes.RunningProcess | None = None
        self._table = table
        self._serial_log = request.directory / "serial.log"
        self._requested_at = time.monotonic()
        self._overlay = self._create_overlay()

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more is awaited from this guest."""
        last = GuestState.CHECKED if self.request.check_content else GuestState.LOGIN
        return self.state in (last, GuestState.CHECKED, GuestState.FAILED)

    @property
    def age_s(self) -> float:
        """Return the seconds since the request, or the boot time when that is over."""
        return self.boot_time_s or time.monotonic() - self._requested_at

    def poll(self) -> GuestState:
        """Go on as far as possible and return the state."""
        if self.state is GuestState.REQUESTED:
            self._poll_overlay()
        elif self.state in (GuestState.BOOTING, GuestState.LOGIN) and not self.is_settled:
            self._poll_serial()
        return self.state

    def give_up(self, reason: str) -> None:
        """Fail a guest that is not settled: the wait for it is over."""
        if not self.is_settled:
            self._fail(f"{reason}; serial line: {self.serial_tail()}")

    def stop(self) -> None:
        """End QEMU; the guest is not asked."""
        if self._overlay.poll() is None:
            self._overlay.kill()
            self._overlay.wait()
        if self.process is not None:
            self._table.stop(self.process)

    @property
    def read_log(self) -> pathlib.Path:
        """Return QEMU's log of reads of the guest's disk, for :mod:`testbed.guest_reads`."""
        return self.request.directory / "reads.log"

    def serial_tail(self, lines: int = 5) -> str:
        """Return the last lines of the serial line."""
        return "\n".join(self._serial_text().strip().splitlines()[-lines:])

    def _create_overlay(self) -> subprocess.Popen[bytes]:
        disk = self.request.disk
        command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", disk.format]
        command += ["-b", disk.location, str(self.request.directory / "overlay.qcow2")]
        return subprocess.Popen(
            processes.in_namespace(self.request.namespace, command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _poll_overlay(self) -> None:
        status = self._overlay.poll()
        if status is None:
            return
        if status != 0:
            message = b"" if self._overlay.stderr is None else self._overlay.stderr.read()
            self._fail(f"qemu-img cannot make the overlay: {message.decode(errors='replace')}")
            return
        self.overlay_time_s = time.monotonic() - self._requested_at
        self.process = self._table.spawn(
            f"guest-{self.request.name}", self._qemu_command(), namespace=self.request.namespace
        )
        self._move(GuestState.BOOTING)

    def _qemu_command(self) -> list[str]:
        request = self.request
        directory = request.directory
        arguments = "console=ttyS0 root=/dev/vda ro quiet"
        if request.check_content:
            arguments += f" acstor.check={request.image.content_tree}"
        # cache=writeback: the base is read-only and read through the page cache that all guests
        # of the host share; flushes of the guest reach the overlay all the same.
        drive = f"file={directory}/overlay.qcow2,format=qcow2,if=none,id=root,cache=writeback"
        serial = f"socket,id=serial,path={directory}/serial.sock,server=on,wait=off"
        return [
            "qemu-system-x86_64",
            *("-name", request.name),
            *request.accelerator.qemu_arguments,
            *("-M", "pc", "-m", str(request.memory_mib), "-smp", "1"),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-kernel", str(request.image.kernel), "-initrd", str(request.image.initrd)),
            *("-append", arguments),
            *("-drive", drive, "-device", "virtio-blk-pci,drive=root"),
            *("-object", "rng-random,id=rng,filename=/dev/urandom"),
            *("-device", "virtio-rng-pci,rng=rng"),
            *("-chardev", f"{serial},logfile={self._serial_log},logappend=off"),
            *("-serial", "chardev:serial"),
            # One line per read that the guest's disk asks of the block layer.
            *("-trace", f"enable=blk_co_preadv,file={self.read_log}"),
        ]

    def _poll_serial(self) -> None:
        text = self._serial_text()
        if self.state is GuestState.BOOTING and self.request.image.login_prompt in text:
            self.boot_time_s = time.monotonic() - self._requested_at
            self._move(GuestState.LOGIN)
        line = _CONTENT_LINE.search(text)
        if self.state is GuestState.LOGIN and line is not None:
            self._check_content(tree=line[1], digest=line[2])
        elif self.process is not None and not self.process.is_alive:
            self._fail(
                f"QEMU ended with {self.process.popen.returncode}: {self.process.log_tail()}\n"
                f"serial line: {self.serial_tail()}"
            )

    def _check_content(self, tree: str, digest: str) -> None:
        image = self.request.image
        if (tree, digest) == (image.content_tree, image.content_digest):
            self._move(GuestState.CHECKED)
            return
        self._fail(
            f"the guest read other bytes below {image.content_tree} than the image holds: "
            f"digest {digest} of {tree}, not {image.content_digest}"
        )

    def _serial_text(self) -> str:
        try:
            with self._serial_log.open("rb") as log:
                return log.read(SERIAL_BYTES_MAX).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _move(self, state: GuestState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.state} -> {state}")
        self.state = state

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self._move(GuestState.FAILED)
