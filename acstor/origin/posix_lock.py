"""Locks of a POSIX origin: byte-range locks on lock files, local and over NFS.

Open-file-description locks are used: unlike classic ``fcntl`` locks they also exclude the threads
of one process from each other, and closing another descriptor of the same file does not drop
them. The kernel releases them when the holder dies, so a crash leaves no lock behind.
"""

import contextlib
import errno
import fcntl
import os
import random
import struct
import time
from collections.abc import Iterator

from acstor import exception

_RETRY_SECONDS_MIN = 0.001
_RETRY_SECONDS_MAX = 0.05


@contextlib.contextmanager
def exclusive(path: str, deadline_seconds: float) -> Iterator[None]:
    """Hold the lock file ``path``, which is created if needed and never removed.

    :param deadline_seconds: longest wait for another holder.
    :raises DeadlineError: when the other holder does not let go in time.
    :raises OSError: when the file cannot be opened or locked.
    """
    # Through no link: others may write to the origin, and it may be root who locks.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        _lock(descriptor, path, time.monotonic() + deadline_seconds)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str, deadline: float) -> None:
    # struct flock: type, whence, start, length, pid; a length of 0 is the whole file.
    request = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    wait = _RETRY_SECONDS_MIN
    while True:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                raise
        if time.monotonic() >= deadline:
            raise exception.DeadlineError(
                f"another process holds {path} for too long",
                hint="find the process (fuser on that file) and let it end",
            )
        time.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(2 * wait, _RETRY_SECONDS_MAX)
