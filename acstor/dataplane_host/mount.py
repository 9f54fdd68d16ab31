"""The mount point, without ever waiting for a file system whose server is this very process."""

import ctypes
import logging
import os
import re

LOG = logging.getLogger(__name__)

_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_mounted(path: str, mounts_file: str = "/proc/self/mountinfo") -> bool:
    """Return whether a FUSE file system is mounted at ``path``, without touching it.

    ``stat`` would ask the file system's server, which may be a process that is gone, or this one.
    """
    wanted = os.path.abspath(path)
    with open(mounts_file, encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            before, separator, after = line.partition(" - ")
            fields, kinds = before.split(" "), after.split(" ")
            if not separator or len(fields) < 5 or not kinds[0].startswith("fuse"):
                continue
            if _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]) == wanted:
                return True
    return False


def prepare(path: str) -> None:
    """Make ``path`` ready to be mounted on: detach what a dead process left, create it.

    :raises OSError: when either is not possible.
    """
    while is_mounted(path):
        LOG.warning("detaching a file system at %s that nobody serves any more", path)
        _detach(path)
    os.makedirs(path, mode=0o755, exist_ok=True)


def _detach(path: str) -> None:
    # Not umount(8): it looks at the path first, which may wait for ever.
    library = ctypes.CDLL(None, use_errno=True)
    if library.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
