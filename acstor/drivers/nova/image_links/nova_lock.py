"""Nova's own lock of a base file, held while a link is planted or removed.

Nova holds ``<instances_path>/locks/nova-<name of the base file>`` while it downloads, makes an
overlay, and removes (Nova ``utils.synchronized(..., external=True, lock_path=...)``). A look never
waits for it: a download may take minutes.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from acstor.drivers.nova.image_links.nova_directories import NovaDirectories
from acstor.drivers.nova.image_links.nova_settings import NovaSettings

LOCK_PREFIX = "nova-"
_ATTEMPTS_MAX = 5


class LockBusyError(Exception):
    """Nova holds the lock: it downloads the image or makes an overlay of it."""


@contextlib.contextmanager
def held(settings: NovaSettings, directories: NovaDirectories, name: str) -> Iterator[None]:
    """Hold the lock of one base file; give up at once where somebody else does.

    The lock is that of fasteners, which Nova uses: ``fcntl.lockf`` of the whole file. fasteners
    itself would open the file through a link, and make what that leads to.

    POSIX locks are a process's: no other thread of this process may do the same, nor open the lock
    file, meanwhile.

    :raises LockBusyError: when somebody else holds it.
    :raises OSError: when the lock file cannot be made or opened, or is no regular file.
    """
    path = os.path.join(settings.lock_directory, LOCK_PREFIX + name)
    for _ in range(_ATTEMPTS_MAX):
        descriptor = directories.open_lock_file(path)
        if descriptor is None:
            continue
        try:
            _lock(descriptor, path)
            # Nova's image cache manager removes lock files: a lock on a file that has no name any
            # more keeps nobody out.
            if _is_same(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)  # which gives the lock up
    raise LockBusyError(path)


def _lock(descriptor: int, path: str) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise LockBusyError(path) from error
        raise


def _is_same(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
