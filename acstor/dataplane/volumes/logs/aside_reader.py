"""Reading the disk of a log that was put aside: into a raw file, whatever the volume is by now."""

import contextlib
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.dataplane.volumes import manifest_levels
from acstor.dataplane.volumes.attachments import SECRET_BYTES
from acstor.dataplane.volumes.logs.aside import LogAside
from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.dataplane.volumes.runtime import VolumeSpec
from acstor.native import DataPlane, map_errors
from acstor.nbd_connection import NbdConnection

_PIECE = 8 << 20
_REQUEST_TIMEOUT = 120.0


class NoOrigin:
    """Origin of a volume that is only read: it takes and gives nothing."""

    def put_if_absent(self, key: str, buffers: Sequence[bytes]) -> bool:
        """Refuse."""
        raise _refusal(key)

    def get(self, key: str, size_max: int) -> bytes:
        """Refuse."""
        raise _refusal(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Refuse."""
        raise _refusal(prefix)


def _refusal(key: str) -> exception.AcstorError:
    return exception.UnavailableError(f"{key}: a log that was put aside is only read")


def copy(runtime: DataPlane, aside: LogAside, kept: PersistedVolume, path: str) -> int:
    """Write what the disk was, with all that the log has, to a new raw file; return its size.

    :param kept: what the log was opened with.
    :raises AcstorError: when the log or what lies below it cannot be read.
    :raises OSError: when the file cannot be written, or is there already.
    """
    volume, manifest = aside.volume, None
    if kept.manifest is not None:
        manifest = os.path.join(aside.path, manifest_levels.file_name(kept.manifest))
    spec = VolumeSpec(
        directory=os.path.join(aside.path, "log"),
        epoch=kept.epoch,
        next=kept.next,
        size_bytes=kept.size_bytes,
        manifest_path=manifest,
        manifest=kept.manifest,
        logs=kept.logs,
        durability=kept.durability,
        iops=0,
        bytes_per_s=0,
        reserve_bytes=0,
        adopts=kept.adopts,
    )
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(open(path, "xb"))
        with map_errors(f"reading {aside.path}"):
            runtime.volume_open(volume, spec, NoOrigin())
            stack.callback(runtime.volume_close, volume)
            token = secrets.token_hex(SECRET_BYTES)
            socket_path = stack.enter_context(_served(runtime, volume, token))
        connection = NbdConnection(socket_path, token, _REQUEST_TIMEOUT)
        stack.callback(connection.close)
        try:
            _copy(connection, kept.size_bytes, target.fileno())
        except OSError as error:
            raise exception.UnavailableError(
                f"reading {aside.path} into {path}: {error}"
            ) from error
        os.fsync(target.fileno())
    return kept.size_bytes


@contextlib.contextmanager
def _served(runtime: DataPlane, volume: str, token: str) -> Iterator[str]:
    """Serve the volume on a socket of this process's own; nobody else may read or write it."""
    with (
        tempfile.TemporaryDirectory(prefix="acstor-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = os.path.join(folder, "nbd.sock")
        listener.bind(path)
        listener.listen()
        runtime.volume_serve(volume, os.dup(listener.fileno()), token)
        yield path


def _copy(connection: NbdConnection, size_bytes: int, target: int) -> None:
    buffer = memoryview(bytearray(_PIECE))
    zeros = bytes(_PIECE)
    os.ftruncate(target, size_bytes)
    for offset in range(0, size_bytes, _PIECE):
        piece = buffer[: min(_PIECE, size_bytes - offset)]
        connection.read_into(offset, piece)
        if piece != zeros[: len(piece)]:
            _write_all(target, piece, offset)


def _write_all(target: int, piece: memoryview, offset: int) -> None:
    while piece:
        written = os.pwrite(target, piece, offset)
        piece, offset = piece[written:], offset + written
