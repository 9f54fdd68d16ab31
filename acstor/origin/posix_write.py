"""Atomic, durable creation and replacement of files in one directory tree.

A file is written under a temporary name in the same file system and synchronised, then gets its
name by link(2), which never overwrites, or by rename(2), which replaces in one step; then the
directory is synchronised. A crash leaves at most a temporary file.

Large files bypass the page cache where the file system can do that: the one who writes a pack
does not read it soon, and copying into the cache costs more than digesting.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import socket
from collections.abc import Sequence

IOVECS_MAX = 1024
"""Most buffers of one writev call (Linux: IOV_MAX)."""

DIRECT_SIZE_MIN = 1 << 20
"""Size from which a leading buffer of whole blocks is written with O_DIRECT."""
BLOCK_SIZE = 4096

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def write_temporary(folder: str, views: Sequence[memoryview]) -> str:
    """Write the views to a new file in ``folder``, synchronise it and return its path.

    :raises OSError: when that fails; the file is then removed as far as possible.
    """
    path = os.path.join(folder, unique_name())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        try:
            done = _write_direct(descriptor, views)
            _write_all(descriptor, _after(views, done))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        remove_if_there(path)
        raise
    return path


def unique_name() -> str:
    """Return a name that no other file has; it says who made the file."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"


def _write_direct(descriptor: int, views: Sequence[memoryview]) -> int:
    """Write large leading buffers past the page cache; return the number of bytes written.

    What cannot be written so, for whatever reason, is left to the ordinary way.
    """
    leading = []
    for view in views[:IOVECS_MAX]:
        if len(view) % BLOCK_SIZE or len(view) < DIRECT_SIZE_MIN:
            break
        leading.append(view)
    if not leading:
        return 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    done = 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        while pending := _after(leading, done):
            written = os.writev(descriptor, pending)
            done += written
            if written % BLOCK_SIZE or not written:
                break
    except OSError as error:
        # EINVAL: no O_DIRECT here, or a buffer that is not aligned.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return done


def _after(views: Sequence[memoryview], size: int) -> list[memoryview]:
    """Return the views without their first ``size`` bytes."""
    rest = []
    for view in views:
        if size < len(view):
            rest.append(view[size:])
        size = max(0, size - len(view))
    return rest


def _write_all(descriptor: int, views: Sequence[memoryview]) -> None:
    pending = list(views)
    first = 0
    while first < len(pending):
        written = os.writev(descriptor, pending[first : first + IOVECS_MAX])
        if written == 0:
            raise OSError(errno.EIO, "a write wrote nothing")
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = pending[first][written:]


def give_name(temporary: str, path: str) -> bool:
    """Move ``temporary`` to ``path`` unless something is there.

    :returns: False when something was there; ``temporary`` is gone in both cases.
    :raises OSError: when it cannot be done; ``temporary`` is then still there.
    """
    try:
        _link(temporary, path)
    except FileExistsError:
        # Over NFS a link request that was answered, but whose answer was lost, is repeated and
        # then finds its own work: the temporary file has two names.
        is_ours = os.stat(temporary).st_nlink == 2
        os.unlink(temporary)
        return is_ours
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename_without_replacing(temporary, path)
    os.unlink(temporary)
    return True


def add_name(temporary: str, path: str) -> None:
    """Give ``temporary`` the further name ``path``, its only one where there are no links.

    :raises FileExistsError: when something is there; over NFS it may be this file all the same.
    :raises OSError: when it cannot be done; over NFS it may be done all the same.
    """
    try:
        _link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_exclusively(temporary, path)


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except PermissionError as error:
        # An NFS server that takes everybody for one user (all_squash) owns the file, and Linux
        # (fs.protected_hardlinks) lets only who may write to it link what another one owns.
        if error.errno != errno.EPERM:
            raise
        # By a descriptor, and through no link: what has the name may be another's by now.
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, 0o644)
            try:
                os.link(temporary, path)
            finally:
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, 0o444)
        finally:
            os.close(descriptor)


def _rename_without_replacing(temporary: str, path: str) -> bool:
    try:
        _rename_exclusively(temporary, path)
    except FileExistsError:
        os.unlink(temporary)
        return False
    return True


def _rename_exclusively(temporary: str, path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.renameat2(
        _AT_FDCWD, os.fsencode(temporary), _AT_FDCWD, os.fsencode(path), _RENAME_NOREPLACE
    )
    if status != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def remove_if_there(path: str) -> bool:
    """Remove a file; return whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def synchronise_folder(path: str) -> None:
    """Make the names in the folder ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
