"""The mount point, without ever waiting for a file system whose server is this very process."""

import ctypes
import errno
import logging
import os
import re
import threading
import time

from acstor import exception

LOG = logging.getLogger(__name__)

_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_DISCONNECTED = frozenset({errno.ENOTCONN, errno.ECONNABORTED})
_PROBE_TIMEOUT = 0.5
"""Seconds after which a file system that does not answer is taken for one that is held: where
nobody holds it the kernel answers at once."""
_POLL_INTERVAL = 0.05
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_mounted(path: str, mounts_file: str = "/proc/self/mountinfo") -> bool:
    """Return whether what is mounted last at ``path`` is a FUSE file system, without touching it.

    ``stat`` would ask the file system's server, which may be a process that is gone, or this one.
    Links above it are followed, since the kernel says where it is.
    """
    above, name = os.path.split(os.path.abspath(path))
    wanted = os.path.join(os.path.realpath(above), name)
    is_fuse = False
    with open(mounts_file, encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            before, separator, after = line.partition(" - ")
            fields, kinds = before.split(" "), after.split(" ")
            if not separator or len(fields) < 5:
                continue
            if _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]) == wanted:
                is_fuse = kinds[0].startswith("fuse")
    return is_fuse


def is_connected(path: str) -> bool:
    """Return whether some process still has the descriptor of the FUSE file system at ``path``.

    Asks by ``statfs`` on a thread of its own: while nobody serves the file system that waits, and
    such a thread ends with the process.
    """
    answered = threading.Event()
    failures: list[int] = []

    def ask() -> None:
        try:
            os.statvfs(path)
        except OSError as error:
            failures.append(error.errno or 0)
        answered.set()

    threading.Thread(target=ask, name="mount-probe", daemon=True).start()
    return not answered.wait(_PROBE_TIMEOUT) or not _DISCONNECTED.intersection(failures)


def wait_disconnected(path: str, timeout: float) -> bool:
    """Wait until nobody has the descriptor of the mount at ``path``; return whether that is so.

    A process that was killed gives its store up a moment before its other descriptors.

    :param timeout: seconds.
    """
    until = time.monotonic() + timeout
    while is_mounted(path) and is_connected(path):
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_INTERVAL)
    return True


def detach_all(path: str) -> int:
    """Take every FUSE file system away from ``path``, whoever uses it; return how many there were.

    :raises OSError: when the kernel refuses.
    """
    count = 0
    while is_mounted(path):
        LOG.warning("detaching the file system at %s", path)
        _detach(path)
        count += 1
    return count


def _detach(path: str) -> None:
    # Not umount(8): it looks at the path first, which may wait for ever.
    library = ctypes.CDLL(None, use_errno=True)
    if library.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def refuse_within(path: str, mounted_at: str) -> None:
    """Refuse a file of the data plane's own file system, which would wait for its own process.

    :raises InvalidError: when it is one.
    """
    if os.path.commonpath([os.path.abspath(path), mounted_at]) == mounted_at:
        raise exception.InvalidError(f"{path} is in the mount of the data plane itself")
