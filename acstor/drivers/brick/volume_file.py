"""A volume as a Python file, for Cinder's own processes: backup, copies, image upload.

Stands where the ``path`` of an attached device is a file name for other connectors, with what
os-brick's file over RBD can: read, write, seek, tell, flush; no file descriptor.
"""

import errno
import io
import os
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

import tenacity

from acstor.nbd_connection import ConnectionLostError, NbdConnection

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Result = TypeVar("Result")

IO_TIMEOUT = 60.0
"""Seconds without any progress after which a connection counts as lost."""
IO_DEADLINE = 300.0
"""Seconds that one call may take, with its repetitions after lost connections."""
_WAIT_MAX = 2.0


class VolumeFile(io.RawIOBase):
    """One volume, open for reading and, unless it is read-only, for writing.

    What was requested over a connection that is lost (the data plane was restarted) is requested
    again over a new one: reads and writes of the same bytes may be repeated.

    Not for several threads at a time, as no file object of a device is in Cinder.

    :param socket_path: of the data plane's NBD server.
    :param export: name of the volume there.
    :param is_read_only: refuse to write.
    :param io_timeout: see :data:`IO_TIMEOUT`.
    :param io_deadline: see :data:`IO_DEADLINE`.
    :raises OSError: when the volume cannot be reached in time.
    """

    def __init__(
        self,
        socket_path: str,
        export: str,
        *,
        is_read_only: bool = False,
        io_timeout: float = IO_TIMEOUT,
        io_deadline: float = IO_DEADLINE,
    ) -> None:
        super().__init__()
        self._socket_path = socket_path
        self._export = export
        self._is_read_only = is_read_only
        self._io_timeout = io_timeout
        self._io_deadline = io_deadline
        self._offset = 0
        self._is_dirty = False
        self._connection: NbdConnection | None = None
        self._repeat(lambda connection: None)

    @property
    def uri(self) -> str:
        """URI of the volume, as QEMU's tools take it."""
        return nbd_uri(self._socket_path, self._export)

    @property
    def size_bytes(self) -> int:
        """Size of the volume as this connection knows it."""
        return self._repeat(lambda connection: connection.size_bytes)

    # What the volume can

    def readable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def writable(self) -> bool:
        """Return whether writing is allowed."""
        self._check_open()
        return not self._is_read_only and not self._repeat(lambda found: found.is_read_only)

    def seekable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def fileno(self) -> NoReturn:
        """Refuse: there is none.

        :raises UnsupportedOperation: always.
        """
        raise io.UnsupportedOperation("a volume of ACStor has no file descriptor")

    def truncate(self, size: int | None = None) -> NoReturn:
        """Refuse: volumes are resized by Cinder.

        :raises UnsupportedOperation: always.
        """
        raise io.UnsupportedOperation("a volume of ACStor cannot be truncated")

    def tell(self) -> int:
        """Return the position, bytes."""
        self._check_open()
        return self._offset

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position and return it; it may be beyond the end."""
        self._check_open()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset}
        if whence == os.SEEK_END:
            bases[os.SEEK_END] = self.size_bytes
        if whence not in bases:
            raise ValueError(f"whence {whence} is not supported")
        position = bases[whence] + offset
        if position < 0:
            raise ValueError(f"negative position {position}")
        self._offset = position
        return position

    # Reading

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill ``buffer`` as far as the volume goes; return the number of bytes."""
        self._check_open()
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self.size_bytes - self._offset))
        if length:
            self._repeat(lambda found: _read(found, self._offset, view[:length]))
        self._offset += length
        return length

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end. Without it, all that is left."""
        self._check_open()
        left = max(0, self.size_bytes - self._offset)
        length = left if size is None or size < 0 else min(size, left)
        buffer = bytearray(length)
        return bytes(memoryview(buffer)[: self.readinto(buffer)])

    def readall(self) -> bytes:
        """Return all that is left."""
        return self.read()

    # Writing

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write all of ``data``; return the number of bytes.

        :raises OSError: ``ENOSPC`` when it goes beyond the end; nothing is written then.
        """
        if not self.writable():
            raise io.UnsupportedOperation("the volume is open for reading only")
        view = memoryview(data).cast("B")
        if self._offset + len(view) > self.size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.uri)
        if view:
            self._is_dirty = True
            self._repeat(lambda found: _write(found, self._offset, view))
        self._offset += len(view)
        return len(view)

    def flush(self) -> None:
        """Make durable what was written."""
        super().flush()  # refuses when closed
        if self._is_dirty:
            self._repeat(lambda found: found.flush())
            self._is_dirty = False

    def close(self) -> None:
        """Flush and close; a second time does nothing."""
        if self.closed:
            return
        try:
            super().close()  # flushes
        finally:
            self._drop()

    # Connection

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the volume's file is closed")

    def _repeat(self, operation: Callable[[NbdConnection], Result]) -> Result:
        """Run an operation on a connection, on new ones while connections are lost."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ConnectionLostError),
            stop=tenacity.stop_after_delay(self._io_deadline),
            wait=tenacity.wait_random_exponential(0.05, _WAIT_MAX),
            reraise=True,
        )
        result: Result = retrying(self._once, operation)
        return result

    def _once(self, operation: Callable[[NbdConnection], Result]) -> Result:
        if self._connection is None:
            self._connection = NbdConnection(self._socket_path, self._export, self._io_timeout)
        try:
            return operation(self._connection)
        except ConnectionLostError:
            self._drop()
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def nbd_uri(socket_path: str, export: str) -> str:
    """Return the URI of an export, as QEMU's tools take it."""
    return (
        f"nbd+unix:///{urllib.parse.quote(export, safe='')}"
        f"?socket={urllib.parse.quote(socket_path)}"
    )


def _read(connection: NbdConnection, offset: int, view: memoryview) -> None:
    """Read any range, out of the blocks that hold it."""
    block = connection.block_size
    start, end = offset // block * block, -(-(offset + len(view)) // block) * block
    if (start, end) == (offset, offset + len(view)):
        connection.read_into(offset, view)
        return
    blocks = bytearray(end - start)
    connection.read_into(start, memoryview(blocks))
    view[:] = blocks[offset - start : offset - start + len(view)]


def _write(connection: NbdConnection, offset: int, view: memoryview) -> None:
    """Write any range; blocks at its ends that are not whole are read first."""
    block = connection.block_size
    head = min(-offset % block, len(view))
    middle = (len(view) - head) // block * block
    if head:
        _patch(connection, offset, view[:head])
    if middle:
        connection.write(offset + head, view[head : head + middle])
    if head + middle < len(view):
        _patch(connection, offset + head + middle, view[head + middle :])


def _patch(connection: NbdConnection, offset: int, part: memoryview) -> None:
    """Write a part of one block."""
    size = connection.block_size
    start = offset // size * size
    block = bytearray(size)
    connection.read_into(start, memoryview(block))
    block[offset - start : offset - start + len(part)] = part
    connection.write(start, memoryview(block))
