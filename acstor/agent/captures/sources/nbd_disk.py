"""A disk behind an NBD export of QEMU: of a backup of a running guest, or of a file at rest."""

from collections.abc import Callable, Iterator

from acstor import exception
from acstor.agent.captures.sources.base import SECTOR_SIZE, DiskSource, LayeredExtent
from acstor.nbd_block_status import ALLOCATION, DEPTH, IS_ZERO, NbdBlockStatus
from acstor.nbd_connection import NbdConnection

READ_TIMEOUT = 60.0
"""Seconds without any progress after which the server counts as hung."""


class NbdDisk(DiskSource):
    """A disk behind an export.

    :param own_depth: layers of the chain, from the topmost on, that are the disk's own.
    :param tells_layers: whether the export has the context ``qemu:allocation-depth``.
    :param check: raises when what is read is not of one moment any more.
    :param on_close: called once, after the connections of a disk that was opened are closed.
    :raises UnavailableError: when the server cannot be reached, or tells less than it should.
    """

    def __init__(
        self,
        device: str,
        socket_path: str,
        export: str,
        *,
        own_depth: int,
        tells_layers: bool,
        check: Callable[[], None] = lambda: None,
        on_close: Callable[[], None] = lambda: None,
        timeout_s: float = READ_TIMEOUT,
    ) -> None:
        self.device = device
        self.tells_layers = tells_layers
        self._own_depth = own_depth
        self._check = check
        self._on_close: Callable[[], None] | None = None
        self._connections: list[NbdConnection] = []
        contexts = (ALLOCATION, DEPTH) if tells_layers else (ALLOCATION,)
        try:
            self._data = NbdConnection(socket_path, export, timeout_s)
            self._connections.append(self._data)
            self._status = NbdBlockStatus(socket_path, export, contexts, timeout_s)
            self._connections.append(self._status)
        except OSError as error:
            self.close()
            raise _unavailable(device, error) from error
        self.size_bytes = self._data.size_bytes
        if not self.size_bytes or self.size_bytes % SECTOR_SIZE:
            self.close()
            raise exception.UnsupportedError(
                f"disk {device} has {self._data.size_bytes} bytes, no multiple of {SECTOR_SIZE}",
                hint="versions need disks of whole sectors",
            )
        self._on_close = on_close

    def extents(self) -> Iterator[LayeredExtent]:
        """See :class:`.DiskSource`."""
        try:
            for start, end, flags in self._status.statuses(0, self.size_bytes):
                is_zero = bool(flags[0] & IS_ZERO)
                # Of depth 0 no layer has anything: the base reads as zeros there, too.
                is_own = not self.tells_layers or 1 <= flags[1] <= self._own_depth
                yield LayeredExtent(start, end, is_zero, is_own)
        except OSError as error:
            raise _unavailable(self.device, error) from error

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """See :class:`.DiskSource`."""
        try:
            self._data.read_into(offset, buffer)
        except OSError as error:
            raise _unavailable(self.device, error) from error

    def check_unchanged(self) -> None:
        """See :class:`.DiskSource`."""
        self._check()

    def close(self) -> None:
        """See :class:`.DiskSource`."""
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


def _unavailable(device: str, error: OSError) -> exception.UnavailableError:
    return exception.UnavailableError(
        f"disk {device}: QEMU's NBD server: {error.strerror or error}",
        hint="the guest was stopped or is moved, or the capture is given up: capture again",
    )
