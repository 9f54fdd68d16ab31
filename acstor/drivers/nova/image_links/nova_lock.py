"""Nova's own lock of a base file, held while a link is planted or removed.

Nova holds ``<instances_path>/locks/nova-<name of the base file>`` while it downloads, makes an
overlay, and removes (Nova ``utils.synchronized(..., external=True, lock_path=...)``). A look never
waits for it: a download may take minutes.
"""

import contextlib
import os
from collections.abc import Iterator

from oslo_concurrency import lockutils

from acstor.drivers.nova.image_links.nova_directories import NovaDirectories
from acstor.drivers.nova.image_links.nova_settings import NovaSettings

LOCK_PREFIX = "nova-"
_ATTEMPTS_MAX = 5


class LockBusyError(Exception):
    """Nova holds the lock: it downloads the image or makes an overlay of it."""


@contextlib.contextmanager
def held(settings: NovaSettings, directories: NovaDirectories, name: str) -> Iterator[None]:
    """Hold the lock of one base file; give up at once where somebody else does.

    POSIX locks are a process's: no other thread of this process may do the same, nor open the lock
    file, meanwhile.

    :raises LockBusyError: when somebody else holds it.
    :raises OSError: when the lock file cannot be made or opened.
    """
    path = os.path.join(settings.lock_directory, LOCK_PREFIX + name)
    for _ in range(_ATTEMPTS_MAX):
        directories.make_lock_file(path)
        lock = lockutils.external_lock(
            name, lock_file_prefix=LOCK_PREFIX, lock_path=settings.lock_directory
        )
        if not lock.acquire(blocking=False):
            _close(lock)
            raise LockBusyError(path)
        try:
            # Nova's image cache manager removes lock files: a lock on a file that has no name any
            # more keeps nobody out.
            if _is_same(lock.lockfile.fileno(), path):
                yield
                return
        finally:
            lock.release()
    raise LockBusyError(path)


def _close(lock: lockutils.InterProcessLock) -> None:
    # fasteners leaves the file open when it does not get the lock.
    if lock.lockfile is not None:
        lock.lockfile.close()


def _is_same(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
