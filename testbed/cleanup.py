"""Remove what a run left on the machine: processes, mounts, namespaces, its directory.

Works from the journal alone, so that it does the same after a normal end, after ^C, and on the
remains of a run whose process was killed. Every wait is bounded: a mount whose server is gone is
aborted through ``/sys/fs/fuse`` before it is detached, and nothing here opens or stats a path
below a mount point.
"""

import contextlib
import ctypes
import logging
import os
import pathlib
import signal
import time
from collections.abc import Iterator

from pyroute2 import netns

from testbed import network, processes
from testbed.run_directory import ResourceKind, RunDirectory

LOG = logging.getLogger(__name__)

TERMINATE_TIMEOUT_S = 8.0
KILL_TIMEOUT_S = 5.0
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def remove(run: RunDirectory, *, keep_directory: bool = False) -> None:
    """Remove everything that a run created; idempotent.

    :param keep_directory: keep logs and state for a look at them; the run is then no longer
        known as one.
    """
    namespaces = [str(entry["name"]) for entry in run.resources(ResourceKind.NAMESPACE)]
    _end_processes(run, namespaces)
    for entry in run.resources(ResourceKind.MOUNT):
        detach_mount(pathlib.Path(str(entry["name"])))
    for name in namespaces:
        with contextlib.suppress(FileNotFoundError):
            netns.remove(name)
    if keep_directory:
        (run.path / "journal.jsonl").rename(run.path / "journal.done")
    else:
        run.delete()


def _end_processes(run: RunDirectory, namespaces: list[str]) -> None:
    """End the recorded processes and all others inside of the run's namespaces.

    The second part finds what was started but not recorded yet when the run was killed, and the
    children of what it started. The namespaces' names are unique to
    the run, so all of it is ours.
    """

    def remaining() -> set[int]:
        return set(_recorded(run)) | set(_inside(namespaces))

    for number, timeout_s in (
        (signal.SIGTERM, TERMINATE_TIMEOUT_S),
        (signal.SIGKILL, KILL_TIMEOUT_S),
    ):
        for pid in remaining():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + timeout_s
        while remaining() and time.monotonic() < deadline:
            time.sleep(processes.POLL_INTERVAL_S)
    left = remaining()
    if left:
        LOG.warning("processes that do not end: %s", sorted(left))


def _recorded(run: RunDirectory) -> Iterator[int]:
    """Yield the recorded processes that still run."""
    for entry in run.resources(ResourceKind.PROCESS):
        pid = int(entry["pid"])
        if processes.start_time(pid) == entry["started"]:
            yield pid


def _inside(namespaces: list[str]) -> Iterator[int]:
    """Yield the processes whose network is one of the namespaces."""
    inodes = set()
    for name in namespaces:
        with contextlib.suppress(FileNotFoundError):
            inodes.add(network.namespace_path(name).stat().st_ino)
    if not inodes:
        return
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            pid = int(entry.name)
            if (entry / "ns" / "net").stat().st_ino in inodes and processes.start_time(pid):
                yield pid


def detach_mount(mount_point: pathlib.Path) -> None:
    """Abort and detach every FUSE mount on a mount point, without touching what is behind it."""
    for device_minor in mounts_on(mount_point):
        with contextlib.suppress(OSError):
            pathlib.Path(f"/sys/fs/fuse/connections/{device_minor}/abort").write_text("1")
        if _libc.umount2(os.fsencode(mount_point), _MNT_DETACH) != 0:
            error = ctypes.get_errno()
            LOG.warning("cannot detach %s: %s", mount_point, os.strerror(error))


def mounts_on(mount_point: pathlib.Path) -> list[int]:
    """Return the minor device numbers of the mounts on a mount point, as the kernel lists them."""
    minors = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        path = fields[4].encode().decode("unicode_escape")
        if path == str(mount_point):
            minors.append(int(fields[2].partition(":")[2]))
    return minors
