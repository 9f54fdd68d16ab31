"""A disk at rest that is written to: QEMU has it open, and its lock.

What QEMU makes of a write is what counts, as what it makes of a read (:mod:`.at_rest`). It takes
the lock of the image as a guest would: a disk that a guest or a tool has open is refused, and a
guest that is started meanwhile fails to start.
"""

import abc
import os
from collections.abc import Callable

from acstor import exception
from acstor.agent.captures.disk_choice import FORMATS
from acstor.agent.captures.sources.at_rest import open_file
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.sources.nbd_disk import NbdDisk
from acstor.agent.captures.sources.qemu_server import QemuServer
from acstor.agent.restores import qcow2_facts

IN_USE = ('" lock', "another process")
"""Words of which one is in what QEMU says of a disk that somebody else has open."""


class DiskTarget(DiskSource):
    """A disk that is read and written.

    Implemented by :class:`NbdTarget`, and for tests in memory (``testbed/doubles``).
    """

    @abc.abstractmethod
    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes of the disk; where they are zeros no more than that need be kept.

        :raises UnavailableError: when it cannot be written to.
        """

    @abc.abstractmethod
    def finish(self) -> None:
        """Have all that was written be durable, and close the disk.

        :raises ConflictError: when the disk is another file by now.
        :raises UnavailableError: when it need not be durable.
        """


class NbdTarget(NbdDisk, DiskTarget):
    """A disk behind an export that takes writes.

    :param server: of the disk; ended with it.
    :param tells_layers: of the disk; see :class:`.NbdDisk`.
    :param check: raises when what is written is not the guest's disk any more.
    :param on_close: called once the server has ended.
    """

    def __init__(
        self,
        device: str,
        server: QemuServer,
        *,
        tells_layers: bool,
        check: Callable[[], None] = lambda: None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            device,
            server.socket_path,
            "",
            own_depth=1,
            tells_layers=tells_layers,
            check=check,
            on_close=self._end,
        )
        self._server = server
        self._after = on_close
        self._is_well = False

    def write(self, offset: int, data: memoryview) -> None:
        """See :class:`DiskTarget`."""
        try:
            self._data.write(offset, data)
        except OSError as error:
            raise self._unwritable(error) from error

    def finish(self) -> None:
        """See :class:`DiskTarget`."""
        try:
            self._data.flush()
        except OSError as error:
            raise self._unwritable(error) from error
        self.check_unchanged()
        self._is_well = True
        self.close()

    def _end(self) -> None:
        """End the server: by itself where all went well, so that it closes the image."""
        try:
            if self._is_well:
                self._server.finish()
            else:
                self._server.kill()
        finally:
            self._after()

    def _unwritable(self, error: OSError) -> exception.UnavailableError:
        return exception.UnavailableError(
            f"disk {self.device} cannot be written to: {error.strerror or error}",
            hint="make room on the file system of Nova's instances; the restore then goes on",
        )


def open_target(
    device: str, path: str, disk_format: str, check: Callable[[], None] = lambda: None
) -> DiskTarget:
    """Open a disk in a file that nothing else has open.

    :param path: opened without following a link.
    :param disk_format: as the guest has it: never guessed from the content.
    :param check: raises when the guest was started meanwhile.
    :raises NotFoundError: when there is no such file.
    :raises UnsupportedError: when it is none into which a version can be written.
    :raises ConflictError: when a guest or a tool has it open.
    :raises UnavailableError: when it cannot be opened, or QEMU's tools are missing.
    """
    if disk_format not in FORMATS:
        raise exception.UnsupportedError(
            f"disk {device} is of format {disk_format[:40]}; versions are written to qcow2 and raw"
        )
    descriptor = open_file(path)
    work_bytes = 0
    try:
        if disk_format == "qcow2":
            facts = qcow2_facts.read_facts(descriptor, path)
            qcow2_facts.require_writable(path, facts)
            work_bytes = facts.size_bytes
        image = (
            f"driver={disk_format},file.driver=file,"
            f"file.filename=/dev/fd/{descriptor},file.locking=on"
        )

        def check_all() -> None:
            check()
            _require_same(device, path, descriptor)

        server = QemuServer(path, descriptor, image, is_writable=True, work_bytes=work_bytes)
        tells_layers = disk_format == "qcow2"
        return _connected(device, server, descriptor, check_all, tells_layers=tells_layers)
    except BaseException:
        os.close(descriptor)
        raise


def _require_same(device: str, path: str, descriptor: int) -> None:
    """Refuse a disk whose file was replaced while another one was written.

    :raises ConflictError: then.
    """
    written = os.fstat(descriptor)
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        found = None
    if found is None or (found.st_dev, found.st_ino) != (written.st_dev, written.st_ino):
        raise exception.ConflictError(
            f"the file of disk {device} was replaced or moved while it was written",
            hint="restore again, once Nova is done with the server",
        )


def _connected(
    device: str,
    server: QemuServer,
    descriptor: int,
    check: Callable[[], None],
    *,
    tells_layers: bool,
) -> DiskTarget:
    def connect() -> DiskTarget:
        return NbdTarget(
            device,
            server,
            tells_layers=tells_layers,
            check=check,
            on_close=lambda: os.close(descriptor),
        )

    try:
        return server.connect(connect)
    except exception.UnavailableError as error:
        server.kill()
        if not any(words in error.message for words in IN_USE):
            raise
        raise exception.ConflictError(
            f"the file of disk {device} is in use: {error.message}",
            hint="stop the server, and whatever else has its disk open",
        ) from error
    except BaseException:
        server.kill()
        raise
