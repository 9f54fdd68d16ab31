"""Writing a file so that it is complete or absent."""

import contextlib
import errno
import os
import tempfile

_PIECE = 1 << 20
"""Bytes that are copied at once."""


def write_atomically(
    path: str,
    content: bytes,
    *,
    is_synced: bool = False,
    owner: int | None = None,
    size: int | None = None,
) -> None:
    """Replace the file at ``path`` by ``content``; its directory is made when missing.

    :param is_synced: whether it is on the disk when this returns; what can be had again from the
        origin need not be.
    :param owner: number of the user whom the file is given to before it is there; who writes it
        must be root.
    :param size: of the file, bytes, where it is to end with a hole; None: that of the content.
    :raises OSError: when it cannot be written; the file is then as it was.
    """
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".arriving-")
    try:
        with os.fdopen(descriptor, "wb") as target:
            if owner is not None:
                os.fchown(target.fileno(), owner, -1)
            target.write(content)
            if size is not None:
                target.truncate(size)
            if is_synced:
                target.flush()
                os.fsync(target.fileno())
        os.replace(temporary, path)
        if is_synced:
            sync_directory(directory)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def copy_data(source: int, target: int) -> None:
    """Copy a file into an empty one, and leave its holes.

    :param source: descriptor of a regular file.
    :param target: descriptor of a file that may be written.
    :raises OSError: when either fails.
    """
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        while start < end:
            piece = os.pread(source, min(_PIECE, end - start), start)
            if not piece:
                return
            start += os.pwrite(target, piece, start)


def sync_directory(path: str) -> None:
    """Return once the names in a directory outlive a power failure.

    :raises OSError: when they cannot be made to.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
