"""Starting a process with passed descriptors, as systemd does."""

import fcntl
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from acstor.supervision import protocol
from acstor.supervision.holder.descriptor_store import DescriptorStore

_EXEC_FAILED = 127
_SIGNALS_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)


@dataclass
class Child:
    """A started process."""

    pid: int
    started_at: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    watchdog_seen_at: float | None = None
    """Time of the last ``WATCHDOG=1``; None before the first."""
    kill_at: float | None = None
    """Time at which it is killed, after it was asked to leave."""


def start_child(
    command: Sequence[str], environment: Mapping[str, str], store: DescriptorStore
) -> Child:
    """Start ``command`` in a process group of its own with the stored descriptors from 3 on.

    The group is its own so that ^C at a terminal reaches the holder alone, and so that the
    process outlives a holder that is killed. Must be called from a single-threaded process.

    :raises OSError: when the program cannot be executed.
    """
    report_read, report_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_child(command, environment, store, report_write)
    os.close(report_write)
    with os.fdopen(report_read, "rb") as report:
        failure = report.read()
    if failure:
        os.waitpid(pid, 0)
        number = int(failure)
        raise OSError(number, os.strerror(number), command[0])
    return Child(pid)


def _become_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    store: DescriptorStore,
    report_write: int,
) -> None:
    """Turn the forked process into ``command``; never returns."""
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS_RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        stored = list(store)
        # First out of the way of the target numbers, then onto them.
        above = protocol.FIRST_PASSED_FD + len(stored)
        report_write = _duplicate_above(report_write, above)
        moved = [_duplicate_above(entry.descriptor, above) for entry in stored]
        for position, descriptor in enumerate(moved):
            os.dup2(descriptor, protocol.FIRST_PASSED_FD + position, inheritable=True)
        passed = dict(environment)
        if stored:
            passed["LISTEN_FDS"] = str(len(stored))
            passed["LISTEN_FDNAMES"] = ":".join(entry.name for entry in stored)
            passed["LISTEN_PID"] = str(os.getpid())
        if "WATCHDOG_USEC" in passed:
            passed["WATCHDOG_PID"] = str(os.getpid())
        os.execvpe(command[0], list(command), passed)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(report_write, str(error.errno or 0).encode())
    finally:
        os._exit(_EXEC_FAILED)


def _duplicate_above(descriptor: int, lowest: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
