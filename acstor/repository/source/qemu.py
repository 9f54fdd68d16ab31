"""Running QEMU's tools on image files that nobody has reason to trust.

The tools get the open descriptor of the image, no shell, no name that could be replaced, the
format where it is known, and limits of address space and CPU time (as Nova limits qemu-img).
"""

import dataclasses
import os
import subprocess
import sys
from typing import Any

from acstor import exception, untrusted_json
from acstor.repository.source import base

ADDRESS_SPACE_MAX = 1 << 30
"""Bytes of address space of qemu-img (CVE-2015-5162: crafted images make it grow)."""
CPU_SECONDS_MAX = 30
OUTPUT_SIZE_MAX = 256 << 20
"""Longest answer of qemu-img, bytes: a map has about 100 bytes per extent."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageDescription:
    """What qemu-img says of an image."""

    format: str
    size_bytes: int
    backing_file: str | None
    data_file: str | None
    is_encrypted: bool


def limited(arguments: list[str], address_space: int = ADDRESS_SPACE_MAX) -> list[str]:
    """Return the command line that runs ``arguments`` with limits."""
    return [
        sys.executable,
        "-m",
        "oslo_concurrency.prlimit",
        f"--as={address_space}",
        f"--cpu={CPU_SECONDS_MAX}",
        "--",
        "env",
        "LC_ALL=C",
        *arguments,
    ]


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


def extents(file: base.SourceFile, image_format: str, timeout_seconds: float) -> list[base.Extent]:
    """Return the data and zero ranges of an image as ``qemu-img map`` reports them.

    :raises ImageRefusedError: when qemu-img cannot read it.
    """
    path = f"/dev/fd/{file.descriptor}"
    answer = _ask(
        ["map", "--output=json", "-f", image_format, path], timeout_seconds, file.descriptor
    )
    try:
        return [
            base.Extent(
                int(item["start"]), int(item["start"]) + int(item["length"]), bool(item["zero"])
            )
            for item in answer
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise exception.UnsupportedError(f"qemu-img gave an unknown map: {error}") from error


def _ask(arguments: list[str], timeout_seconds: float, descriptor: int | None) -> Any:
    command = limited(["qemu-img", *arguments])
    passed = (descriptor,) if descriptor is not None else ()
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            pass_fds=passed,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise exception.DeadlineError(
            f"qemu-img {arguments[0]} took longer than {timeout_seconds:g} s",
            hint="raise [registration] tool_timeout if the image is sound",
        ) from error
    except OSError as error:
        raise exception.UnavailableError(
            f"qemu-img cannot be run: {error.strerror}", hint="install qemu-utils"
        ) from error
    if done.returncode != 0:
        raise exception.ImageRefusedError(
            f"qemu-img {arguments[0]} refused the image: {_last_line(done.stderr)}"
        )
    if len(done.stdout) > OUTPUT_SIZE_MAX:
        raise exception.ImageRefusedError("the image has too many extents")
    try:
        return untrusted_json.load(done.stdout, f"what qemu-img {arguments[0]} says")
    except ValueError as error:
        raise exception.ImageRefusedError(str(error)) from error


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else "it said nothing"


def start_nbd_server(
    file: base.SourceFile, image_format: str, socket_path: str, connections: int
) -> "subprocess.Popen[bytes]":
    """Start ``qemu-nbd`` on an image, read-only, on a unix socket; returns at once.

    It ends by itself when its last client is gone, so also when this process is killed.

    :raises UnavailableError: when qemu-nbd cannot be run.
    """
    arguments = [
        "env",
        "LC_ALL=C",
        "qemu-nbd",
        "--read-only",
        f"--shared={connections}",
        f"--socket={socket_path}",
        f"--format={image_format}",
        f"/dev/fd/{file.descriptor}",
    ]
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(file.descriptor,),
            env={**os.environ, "TMPDIR": os.path.dirname(socket_path)},
        )
    except OSError as error:
        raise exception.UnavailableError(
            f"qemu-nbd cannot be run: {error.strerror}", hint="install qemu-utils"
        ) from error


def failure_of(server: "subprocess.Popen[bytes]") -> str:
    """Return what a server that has ended said last."""
    return _last_line(server.stderr.read() if server.stderr else b"")
