"""A qcow2 overlay at rest: QEMU's own reader, behind a unix socket.

There is no second reader of the format here: what QEMU makes of a disk is what counts, and
``qemu-nbd --allocation-depth`` tells which clusters the overlay has. The overlay is opened by
descriptor and read-only. It takes no lock of the image, so that a guest may start meanwhile: that
is seen at the end.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.sources.nbd_disk import NbdDisk
from acstor.agent.captures.sources.raw_file import RawFileDisk, check_same_file
from acstor.backoff import BackOff
from acstor.repository.source import confinement
from acstor.repository.source.confinement import Limits

ADDRESS_SPACE_MAX = 4 << 30
"""Bytes of address space of qemu-nbd."""
CPU_SECONDS_MIN = 60
BYTES_PER_CPU_SECOND = 2 << 20
"""Slowest reading of a disk that is allowed, bytes per CPU second."""
START_TIMEOUT = 30.0
"""Seconds that qemu-nbd may take to listen."""
ERRORS_SIZE_MAX = 4096
"""Bytes that are shown of what qemu-nbd says."""
_CONNECTIONS = 2
_CONNECT = BackOff(first=0.01, longest=0.2)


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
    descriptor = _opened(path)
    if disk_format == "raw":
        return RawFileDisk(device, path, descriptor, check)
    try:
        return _open_overlay(device, path, descriptor, check)
    except BaseException:
        os.close(descriptor)
        raise


def _opened(path: str) -> int:
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

    folder = tempfile.mkdtemp(prefix="acstor-capture-")
    server: subprocess.Popen[bytes] | None = None

    def stop() -> None:
        if server is not None:
            server.kill()
            server.wait()
            if server.stderr is not None:
                server.stderr.close()
        shutil.rmtree(folder, ignore_errors=True)

    def finish() -> None:
        stop()
        os.close(descriptor)

    try:
        socket_path = os.path.join(folder, "nbd")
        server = _start(path, descriptor, socket_path, status.st_size)
        for delay in _delays():
            try:
                return NbdDisk(
                    device,
                    socket_path,
                    "",
                    own_depth=1,
                    tells_layers=True,
                    check=check_all,
                    on_close=finish,
                )
            except exception.UnavailableError:
                if server.poll() is not None:
                    raise _refusal(path, server) from None
                time.sleep(delay)
        raise exception.DeadlineError(f"qemu-nbd does not open {path} in {START_TIMEOUT:g} s")
    except BaseException:
        stop()
        raise


def _delays() -> Iterator[float]:
    until, attempts = time.monotonic() + START_TIMEOUT, 0
    while time.monotonic() < until:
        attempts += 1
        yield _CONNECT.seconds(attempts)


def _start(
    path: str, descriptor: int, socket_path: str, size_bytes: int
) -> "subprocess.Popen[bytes]":
    arguments = [
        "qemu-nbd",
        "--read-only",
        "--allocation-depth",
        "--persistent",
        f"--shared={_CONNECTIONS}",
        f"--socket={socket_path}",
        "--image-opts",
        # Without a lock: a server that is started meanwhile must not find its disk in use.
        f"driver=qcow2,file.driver=file,file.filename=/dev/fd/{descriptor},file.locking=off",
    ]
    folder = os.path.dirname(socket_path)
    confinement.give(folder)
    seconds = CPU_SECONDS_MIN + size_bytes // BYTES_PER_CPU_SECOND
    try:
        return subprocess.Popen(
            confinement.confine(
                arguments,
                Limits(ADDRESS_SPACE_MAX, seconds),
                descriptor,
                reads_all=True,  # the base file may be the group's that reads images
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(descriptor,),
            env=confinement.environment(folder),
        )
    except OSError as error:
        raise exception.UnavailableError(
            f"qemu-nbd cannot be run for {path}: {error.strerror}", hint="install qemu-utils"
        ) from error


def _refusal(path: str, server: "subprocess.Popen[bytes]") -> exception.AcstorError:
    output = b""
    if server.stderr is not None:
        with contextlib.suppress(OSError):
            output = server.stderr.read(ERRORS_SIZE_MAX)
    lines = output.decode(errors="replace").strip().splitlines()
    reason = lines[-1][:500] if lines else f"it ended with status {server.returncode}"
    return exception.UnavailableError(
        f"qemu-nbd does not open {path}: {reason}", hint="install qemu-utils and util-linux"
    )
