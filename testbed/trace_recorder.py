"""Record a boot trace: boot a guest on nbdkit's log filter and read the log.

Nothing of ACStor is on the way, so the trace is what a guest asks of any disk. QEMU reads ahead
nothing; the guest's kernel does, and that is part of the trace.
"""

import datetime
import os
import pathlib
import re
import time
from collections.abc import Iterable, Iterator

from testbed import accelerator, boot_trace, cleanup, interruption, processes
from testbed.accelerator import Accelerator
from testbed.boot_trace import BootTrace, TraceRead
from testbed.exception import GuestFailedError, TraceFormatError
from testbed.guest import build
from testbed.guest.build import GuestImage
from testbed.guest.machine import BackingDisk, GuestMachine, GuestRequest, GuestState
from testbed.guest.recipe import GuestRecipe
from testbed.run_directory import RunDirectory

READY_TIMEOUT_S = 20.0
BOOT_TIMEOUT_S = 240.0

# Of nbdkit-log-filter(1): a line when a request starts, one when it ends, joined by the id.
_START = re.compile(
    r"(\S+ \S+) connection=(\d+) Read id=(\d+) offset=0x([0-9a-f]+) count=0x([0-9a-f]+)"
)
_END = re.compile(r"(\S+ \S+) connection=(\d+) \.\.\.Read id=(\d+) return=(-?\d+)")


def record(
    image: GuestImage, chosen: Accelerator, run: RunDirectory, table: processes.ProcessTable
) -> BootTrace:
    """Boot one guest up to its login prompt and return what it read.

    :raises GuestFailedError: when it does not get there.
    """
    directory = run.directory("record")
    log, socket_path = directory / "reads.log", directory / "disk.sock"
    command = ["nbdkit", "--foreground", "--readonly", f"--unix={socket_path}", "--filter=log"]
    server = table.spawn("record-nbd", [*command, "file", str(image.disk), f"logfile={log}"])
    processes.wait_until(
        socket_path.exists,
        "the logged disk answers",
        timeout_s=READY_TIMEOUT_S,
        processes=[server],
    )
    disk = BackingDisk(f"nbd+unix:///?socket={socket_path}")
    guest = GuestMachine(GuestRequest("record", image, disk, chosen, None, directory), table)
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    try:
        while not guest.is_settled and time.monotonic() < deadline:
            guest.poll()
            time.sleep(processes.POLL_INTERVAL_S)
        guest.give_up(f"no login prompt within {BOOT_TIMEOUT_S:g} s")
    finally:
        guest.stop()
        table.stop(server)
    if guest.state is GuestState.FAILED:
        raise GuestFailedError(str(guest.failure))
    source = f"{image.login_prompt.split()[0]} {image.directory.name}, {chosen.name}"
    return from_log(log, image.disk, source)


def record_guest(root: pathlib.Path) -> BootTrace:
    """Build the demo's guest where it is not built, boot it once and return what it read.

    :param root: directory of runs and built guests.
    """
    image = build.build_guest(GuestRecipe(), root / "guests")
    chosen = accelerator.choose(image.kernel, root / "guests")
    run = RunDirectory.create(root)
    try:
        return record(image, chosen, run, processes.ProcessTable(run))
    finally:
        with interruption.held_back():
            cleanup.remove(run)


def from_log(log: pathlib.Path, disk: pathlib.Path, source: str) -> BootTrace:
    """Return the trace that a log of nbdkit's log filter holds.

    :param disk: the raw disk that was read, for the digests.
    :raises TraceFormatError: when the log holds no read.
    """
    with disk.open("rb") as file, log.open(encoding="ascii", errors="replace") as lines:
        reads = [
            TraceRead(
                offset,
                length,
                think_us,
                boot_trace.content_digest(os.pread(file.fileno(), length, offset)),
            )
            for offset, length, think_us in timed_reads(lines)
        ]
        size = os.fstat(file.fileno()).st_size
    if not reads:
        raise TraceFormatError(f"{log} holds no read")
    return BootTrace(size, source, reads)


def timed_reads(lines: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, length, think time in µs) of each read, in the order of the starts.

    The think time is that from the end of the last of all reads before to the start; a read that
    starts while another is under way has none.
    """
    under_way: set[tuple[str, str]] = set()
    idle_since: datetime.datetime | None = None
    for line in lines:
        if (match := _START.match(line)) is not None:
            now = datetime.datetime.fromisoformat(match[1])
            think_us = 0
            if not under_way and idle_since is not None:
                think_us = max(0, (now - idle_since) // datetime.timedelta(microseconds=1))
            under_way.add((match[2], match[3]))
            yield int(match[4], 16), int(match[5], 16), think_us
        elif (match := _END.match(line)) is not None:
            under_way.discard((match[2], match[3]))
            idle_since = datetime.datetime.fromisoformat(match[1])
