"""Room for the bytes of one object while they are copied from one store to another."""

import mmap
import os
import tempfile

from acstor import exception

IN_MEMORY_MAX = 72 << 20
"""Largest object that is held in memory, bytes: the packs that this release makes fit."""


def content_buffer(size: int) -> memoryview:
    """Return room for an object, in memory or in a temporary file.

    :raises ExhaustedError: when there is no room for the file.
    """
    if size <= IN_MEMORY_MAX:
        return memoryview(mmap.mmap(-1, max(1, size)))[:size]
    with tempfile.TemporaryFile(prefix="acstor-copy-") as spool:
        try:
            os.posix_fallocate(spool.fileno(), 0, size)
        except OSError as error:
            raise exception.ExhaustedError(
                f"no temporary file of {size >> 20} MiB can be made in {tempfile.gettempdir()}: "
                f"{error.strerror}",
                hint="name a directory with more room in the environment variable TMPDIR",
            ) from error
        return memoryview(mmap.mmap(spool.fileno(), size))
