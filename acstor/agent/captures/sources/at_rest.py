"""A qcow2 overlay at rest: QEMU's own reader, behind a unix socket.

There is no second reader of the format here: what QEMU makes of a disk is what counts, and
``qemu-nbd --allocation-depth`` tells which clusters the overlay has. The overlay is opened by
descriptor and read-only. It takes no lock of the image, so that a guest may start meanwhile: that
is seen at the end.
"""

import os
import stat
from collections.abc import Callable

from acstor import exception
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.sources.nbd_disk import NbdDisk
from acstor.agent.captures.sources.qemu_server import QemuServer
from acstor.agent.captures.sources.raw_file import RawFileDisk, check_same_file


def open_at_rest(
    device: str, path: str, disk_format: str, check: Callable[[], None] = lambda: None
) -> DiskSource:
    """Open a disk in a file that nothing writes to.

    :param path: opened without following a link.
    :param disk_format: ``qcow2`` or ``raw``, as the guest has it: never guessed from the content,
        which the guest can write.
    :param check: raises when the guest was started meanwhile.
    :raises NotFoundError: when there is no such file.
    :raises UnsupportedError: for other formats.
    :raises UnavailableError: when it cannot be opened, or QEMU's tools are missing.
    """
    if disk_format not in ("qcow2", "raw"):
        raise exception.UnsupportedError(
            f"disk {device} is of format {disk_format[:40]}; versions are taken of qcow2 and raw"
        )
    descriptor = open_file(path)
    if disk_format == "raw":
        return RawFileDisk(device, path, descriptor, check)
    try:
        return _open_overlay(device, path, descriptor, check)
    except BaseException:
        os.close(descriptor)
        raise


def open_file(path: str) -> int:
    """Return a descriptor of a disk's file, for reading; no link is followed.

    :raises NotFoundError: when there is no such file.
    :raises UnsupportedError: when it is no regular file.
    :raises UnavailableError: when it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise exception.NotFoundError(
            f"{path} does not exist", hint="the server was deleted or is moved"
        ) from error
    except OSError as error:
        raise exception.UnavailableError(
            f"{path}: {error.strerror}", hint="run acstor-agent as root"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise exception.UnsupportedError(f"{path} is no regular file")
    return descriptor


def _open_overlay(device: str, path: str, descriptor: int, check: Callable[[], None]) -> DiskSource:
    status = os.fstat(descriptor)

    def check_all() -> None:
        check()
        check_same_file(path, status, os.fstat(descriptor))

    # Without a lock: a server that is started meanwhile must not find its disk in use.
    image = f"driver=qcow2,file.driver=file,file.filename=/dev/fd/{descriptor},file.locking=off"
    server = QemuServer(path, descriptor, image)

    def finish() -> None:
        server.kill()
        os.close(descriptor)

    try:
        return server.connect(
            lambda: NbdDisk(
                device,
                server.socket_path,
                "",
                own_depth=1,
                tells_layers=True,
                check=check_all,
                on_close=finish,
            )
        )
    except BaseException:
        server.kill()
        raise
