"""qcow2 image files, read by QEMU: data through qemu-nbd, holes from ``qemu-img map``.

Why NBD and not a conversion to a temporary raw file: nothing is written twice, no second copy of
the image needs room, and compressed clusters are decompressed on all cores because many requests
are in flight (measured: see ``bench/registration.py``).
"""

import concurrent.futures
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

from acstor import exception, native
from acstor.nbd_connection import NbdConnection
from acstor.repository.source import base, qemu

CONNECTIONS = 2
"""NBD connections; each carries several requests at once."""
_DEFAULT_EXPORT = ""
_CONNECT_POLL_SECONDS = 0.005


class Qcow2Source(base.ImageSource):
    """The disk in a qcow2 file.

    :param file: already inspected: no backing file, no data file. Closed with the source.
    :param timeout_seconds: longest wait for QEMU's tools.
    :param size_bytes: of the disk, as its header says.
    :raises ImageRefusedError: when QEMU cannot read the image.
    :raises UnavailableError: when QEMU's tools are missing or do not answer.
    """

    def __init__(self, file: base.SourceFile, timeout_seconds: float, size_bytes: int) -> None:
        """Start qemu-nbd on the file."""
        self.file: base.SourceFile = file
        self._timeout_seconds = timeout_seconds
        self._clients: list[NbdConnection] = []
        self._pool = concurrent.futures.ThreadPoolExecutor(CONNECTIONS, "acstor-qcow2")
        self._folder = tempfile.mkdtemp(prefix="acstor-register-")
        self.socket_path = os.path.join(self._folder, "nbd")
        self._server: subprocess.Popen[bytes] | None = None
        try:
            self._server = qemu.start_nbd_server(
                file, "qcow2", self.socket_path, CONNECTIONS + 2, size_bytes
            )
            self._clients = [self._connect() for _ in range(CONNECTIONS)]
        except BaseException:
            self.close()
            raise
        self.size_bytes = self._clients[0].size_bytes
        if self.size_bytes % base.SECTOR_SIZE:
            self.size_bytes += base.SECTOR_SIZE - self.size_bytes % base.SECTOR_SIZE

    @property
    def nbd_url(self) -> str:
        """URL at which QEMU's tools find the disk's content."""
        return f"nbd+unix:///?socket={self.socket_path}"

    def extents(self) -> Iterator[base.Extent]:
        """Yield the ranges that ``qemu-img map`` reports."""
        found = qemu.extents(self.file, "qcow2", self._timeout_seconds)
        yield from found
        if found.end < self.size_bytes:
            yield base.Extent(found.end, self.size_bytes, is_zero=True)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """Read through all connections at once, then digest."""
        self._read_into(offset, buffer)
        with native.map_errors(self.file.path):
            return native.scan_buffer(buffer, chunk_size, scope)

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of the disk."""
        content = bytearray(max(0, min(size, self.size_bytes - offset)))
        self._read_into(offset, memoryview(content))
        return bytes(content)

    def check_unchanged(self) -> None:
        """Refuse when the file was changed."""
        self.file.check_unchanged()

    def close(self) -> None:
        """Stop qemu-nbd and close the file."""
        for client in self._clients:
            client.close()
        self._clients = []
        self._pool.shutdown()
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            server.wait()
            if server.stderr:
                server.stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.file.close()

    def _read_into(self, offset: int, buffer: memoryview) -> None:
        present = max(0, min(len(buffer), self._clients[0].size_bytes - offset))
        buffer[present:] = bytes(len(buffer) - present)
        if not present:
            return
        block = self._clients[0].block_size
        share = -(-present // (CONNECTIONS * block)) * block
        jobs = [
            self._pool.submit(
                _read_into, client, offset + start, buffer[start : min(start + share, present)]
            )
            for client, start in zip(self._clients, range(0, present, share), strict=False)
        ]
        # All of them, also after a failure: nobody may write to the buffer after the return.
        concurrent.futures.wait(jobs)
        for job in jobs:
            job.result()

    def _connect(self) -> NbdConnection:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                return NbdConnection(self.socket_path, _DEFAULT_EXPORT, self._timeout_seconds)
            except OSError as error:
                if self._server is not None and self._server.poll() is not None:
                    raise qemu.failure_of(self._server) from None
                if time.monotonic() > deadline:
                    raise _no_answer(error) from error
            time.sleep(_CONNECT_POLL_SECONDS)


def _read_into(client: NbdConnection, offset: int, buffer: memoryview) -> None:
    try:
        client.read_into(offset, buffer)
    except OSError as error:
        raise _no_answer(error) from error


def _no_answer(error: OSError) -> exception.UnavailableError:
    return exception.UnavailableError(f"qemu-nbd does not answer: {error.strerror or error}")
