"""Running QEMU's tools on image files that nobody has reason to trust.

The tools get the open descriptor of the image, no shell, no name that could be replaced, the
format where it is known, and are confined (``confinement.py``; Nova limits qemu-img likewise).
"""

import dataclasses
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from acstor import exception, untrusted_json
from acstor.repository.source import base, confinement, extent_map
from acstor.repository.source.confinement import Limits

IMG_LIMITS = Limits(address_space=1 << 30, cpu_seconds=30)
"""Resource limits of qemu-img (CVE-2015-5162: crafted images make it grow)."""
NBD_ADDRESS_SPACE_MAX = 4 << 30
"""Bytes of address space of qemu-nbd: 64 threads with their stacks, and buffers of requests."""
NBD_CPU_SECONDS_MIN = 60
NBD_BYTES_PER_CPU_SECOND = 2 << 20
"""Slowest reading of a disk that is allowed, bytes per CPU second; decompression takes a hundredth
of that time."""
_NOT_FOUND = 127
"""Exit status of who cannot run the tool."""
ANSWER_SIZE_MAX = 1 << 20
"""Longest description of an image, bytes: it lists snapshots and bitmaps."""
ERRORS_SIZE_MAX = 4096
"""Bytes that are kept of what a tool says last."""
PART_SIZE = 64 << 10
"""Bytes that are read of a tool's output at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageDescription:
    """Properties of an image, as qemu-img reports them."""

    format: str
    size_bytes: int
    backing_file: str | None
    data_file: str | None
    is_encrypted: bool


def describe(
    location: str, timeout_seconds: float, descriptor: int | None = None
) -> ImageDescription:
    """Return what ``qemu-img info`` finds, with the format detected by QEMU.

    :param location: a path or an NBD URL; a path of ``descriptor`` is ``/dev/fd/<n>``.
    :raises ImageRefusedError: when qemu-img cannot read it.
    :raises UnavailableError: when qemu-img is missing or takes too long.
    """
    answer = _ask(["info", "--output=json", location], timeout_seconds, descriptor)
    specific = (answer.get("format-specific") or {}).get("data") or {}
    try:
        return ImageDescription(
            format=str(answer["format"]),
            size_bytes=int(answer["virtual-size"]),
            backing_file=answer.get("backing-filename") or answer.get("full-backing-filename"),
            data_file=specific.get("data-file"),
            is_encrypted=bool(answer.get("encrypted")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise exception.UnsupportedError(f"qemu-img gave an unknown answer: {error}") from error


def extents(
    file: base.SourceFile, image_format: str, timeout_seconds: float
) -> extent_map.ExtentMap:
    """Return the data and zero ranges of an image as ``qemu-img map`` reports them.

    :raises DiskTooLargeError: when there are too many.
    :raises ImageRefusedError: when qemu-img cannot read it.
    """
    path = f"/dev/fd/{file.descriptor}"
    reader = extent_map.MapReader()
    arguments = ["map", "--output=json", "-f", image_format, path]
    _run(arguments, timeout_seconds, file.descriptor, reader.take)
    return reader.finish()


def _ask(arguments: list[str], timeout_seconds: float, descriptor: int | None) -> Any:
    answer = bytearray()

    def take(part: bytes) -> None:
        if len(answer) + len(part) > ANSWER_SIZE_MAX:
            raise exception.ImageRefusedError(f"qemu-img {arguments[0]} says too much of the image")
        answer.extend(part)

    _run(arguments, timeout_seconds, descriptor, take)
    try:
        return untrusted_json.load(answer, f"what qemu-img {arguments[0]} says")
    except ValueError as error:
        raise exception.ImageRefusedError(str(error)) from error


def _run(
    arguments: list[str],
    timeout_seconds: float,
    descriptor: int | None,
    take: Callable[[bytes], None],
) -> None:
    """Run qemu-img and hand its output on as it comes; whatever happens, it has then ended."""
    try:
        process = subprocess.Popen(
            confinement.confine(["qemu-img", *arguments], IMG_LIMITS, descriptor),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(descriptor,) if descriptor is not None else (),
            env=confinement.environment(),
        )
    except OSError as error:
        raise _cannot_be_run("qemu-img", f"{error.strerror}") from error
    errors = bytearray()
    with process:
        try:
            until = time.monotonic() + timeout_seconds
            _hand_on(process, until, take, errors)
            status = process.wait(max(0.0, until - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise exception.DeadlineError(
                f"qemu-img {arguments[0]} took longer than {timeout_seconds:g} s",
                hint="raise [registration] tool_timeout if the image is sound",
            ) from error
        finally:
            process.kill()
    if status == _NOT_FOUND:
        raise _cannot_be_run("qemu-img", _reason(status, errors))
    if status != 0:
        raise exception.ImageRefusedError(
            f"qemu-img {arguments[0]} refused the image: {_reason(status, errors)}"
        )


def _hand_on(
    process: "subprocess.Popen[bytes]",
    until: float,
    take: Callable[[bytes], None],
    errors: bytearray,
) -> None:
    """Read both outputs to their ends; of what it says of errors, keep the last part.

    :raises TimeoutError: when that takes too long.
    """

    def keep(part: bytes) -> None:
        errors.extend(part)
        del errors[:-ERRORS_SIZE_MAX]

    with selectors.DefaultSelector() as outputs:
        for stream, receive in ((process.stdout, take), (process.stderr, keep)):
            if stream is not None:
                outputs.register(stream, selectors.EVENT_READ, receive)
        while outputs.get_map():
            left = until - time.monotonic()
            ready = outputs.select(left) if left > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, PART_SIZE)
                if part:
                    key.data(part)
                else:
                    outputs.unregister(key.fileobj)


def _reason(status: int, errors: bytes | bytearray) -> str:
    """Return why a tool ended."""
    if status < 0:
        return f"it was killed by {signal.Signals(-status).name}"
    return _last_line(bytes(errors))


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else "it said nothing"


def _cannot_be_run(tool: str, reason: str) -> exception.UnavailableError:
    return exception.UnavailableError(
        f"{tool} cannot be run: {reason}", hint="install qemu-utils, and util-linux"
    )


def start_nbd_server(
    file: base.SourceFile, image_format: str, socket_path: str, connections: int, size_bytes: int
) -> "subprocess.Popen[bytes]":
    """Start ``qemu-nbd`` on an image, read-only, on a unix socket; returns at once.

    It ends by itself when its last client is gone, and is killed when this process is.

    :param size_bytes: of the disk; the time that it may take depends on it.
    :raises UnavailableError: when qemu-nbd cannot be run.
    """
    arguments = [
        "qemu-nbd",
        "--read-only",
        f"--shared={connections}",
        f"--socket={socket_path}",
        f"--format={image_format}",
        f"/dev/fd/{file.descriptor}",
    ]
    folder = os.path.dirname(socket_path)
    seconds = NBD_CPU_SECONDS_MIN + size_bytes // NBD_BYTES_PER_CPU_SECOND
    confinement.give(folder)
    try:
        return subprocess.Popen(
            confinement.confine(arguments, Limits(NBD_ADDRESS_SPACE_MAX, seconds), file.descriptor),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(file.descriptor,),
            env=confinement.environment(folder),
        )
    except OSError as error:
        raise _cannot_be_run("qemu-nbd", f"{error.strerror}") from error


def failure_of(server: "subprocess.Popen[bytes]") -> exception.AcstorError:
    """Return why a server has ended."""
    reason = _reason(server.returncode, server.stderr.read() if server.stderr else b"")
    if server.returncode == _NOT_FOUND:
        return _cannot_be_run("qemu-nbd", reason)
    return exception.ImageRefusedError(f"qemu-nbd refused the image: {reason}")
