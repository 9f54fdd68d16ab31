"""Deciding whether an image file may be registered.

Nova inspects an image when it downloads it and skips that when it finds the image in its cache,
so registration takes over the duty (Nova ``virt/images.py``, ``do_image_deep_inspection`` and
``fetch_to_raw``). Because Nova detects the format of what it finds in its cache, the disk's
content itself, as the guest sees it, must look like nothing but raw, GPT or ISO 9660 to the
inspector and to QEMU: a nested qcow2 with a backing file would otherwise be opened on the host.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import IO, cast

from oslo_utils.imageutils import format_inspector

from acstor import exception
from acstor.repository.source import base, qcow2, qemu, raw
from acstor.repository.source.rbd import source as rbd
from acstor.repository.source.rbd.base import BlockSnapshot

DECLARED_FORMATS = ("raw", "qcow2", "iso")
"""Formats that may be declared; ``iso`` is a raw file that holds an ISO 9660 file system."""
_CONTENT_FORMATS = {
    "raw": frozenset({"raw", "gpt"}),
    "iso": frozenset({"iso"}),
    "qcow2": frozenset({"raw", "gpt", "iso"}),
}
"""Declared format -> what the disk's content may look like to the inspector."""
_READ_SIZE = 4096
_INSPECTED_SIZE_MAX = 64 << 20
"""Bytes after which an inspector that is still undecided counts as not matching."""
_PROBED_SIZE = 64 << 10
"""Bytes at the beginning of a disk in RBD that QEMU's tools get; they tell the format by 512."""


@dataclasses.dataclass(frozen=True, slots=True)
class SizeLimits:
    """Most bytes of a disk, of which nothing is read where it has more; None: any number."""

    disk_size_max: int | None = None
    """Limit of the operator."""
    manifest_size_max: int | None = None
    """Limit of the manifests that the repository stores."""

    def check(self, size_bytes: int, what: str) -> None:
        """Refuse a disk.

        :param what: has that size.
        :raises DiskTooLargeError: when it is larger than one of the limits.
        """
        if self.disk_size_max is not None and size_bytes > self.disk_size_max:
            raise exception.DiskTooLargeError(
                f"{what} has {size_bytes} bytes, more than disk_size_max = {self.disk_size_max}",
                hint="raise [registrar] disk_size_max, or give --disk-size-max to 'acstor image "
                "register'",
            )
        if self.manifest_size_max is not None and size_bytes > self.manifest_size_max:
            raise exception.DiskTooLargeError(
                f"{what} has {size_bytes} bytes, more than the {self.manifest_size_max} that a "
                "manifest can have",
                hint="leave the image to Nova: no option raises this limit",
            )


def open_source(
    path: str,
    declared_format: str,
    timeout_seconds: float,
    limits: SizeLimits = SizeLimits(),
) -> base.ImageSource:
    """Open an image file after inspecting it, and its content, in every way that Nova would.

    :param declared_format: one of :data:`DECLARED_FORMATS`.
    :param timeout_seconds: longest time that a tool of QEMU may take.
    :returns: the source; the caller closes it.
    :raises ContentMismatchError: when it is not what is declared.
    :raises DiskTooLargeError: when the disk is larger; nothing of its content was then read.
    :raises ImageRefusedError: when the image is unsafe or encrypted.
    :raises InvalidError: when there is no such file or no such format.
    :raises UnavailableError: when QEMU's tools are missing or do not answer.
    """
    if declared_format not in DECLARED_FORMATS:
        raise exception.InvalidError(
            f"format {declared_format!r} is not supported",
            hint="convert the image: qemu-img convert -O raw",
        )
    file = base.SourceFile(path)
    try:
        source = _open_inspected(file, declared_format, timeout_seconds, limits)
    except BaseException:
        file.close()
        raise
    if source.size_bytes == 0:
        source.close()
        raise exception.ImageRefusedError(f"{path} describes a disk of no bytes")
    return source


def open_rbd_source(
    snapshot: BlockSnapshot, timeout_seconds: float, limits: SizeLimits = SizeLimits()
) -> base.ImageSource:
    """Inspect an image of format raw in RBD, as :func:`open_source` inspects a file.

    QEMU looks at the beginning of a disk to tell its format, and gets that.

    :param snapshot: is closed with the source, and by an error.
    :returns: the source; the caller closes it.
    :raises ContentMismatchError: when it is not raw.
    :raises DiskTooLargeError: when the disk is larger; nothing of its content was then read.
    :raises ImageRefusedError: when the image is unsafe or encrypted.
    :raises UnavailableError: when the cluster or QEMU's tools do not answer, or are missing.
    """
    source = rbd.RbdSource(snapshot)
    try:
        limits.check(source.size_bytes, source.name)
        if source.size_bytes == 0:
            raise exception.ImageRefusedError(f"{source.name} is a disk of no bytes")
        _check_content(source, "raw", source.name)
        with _memory_file(source.read(0, _PROBED_SIZE), source.size_bytes) as descriptor:
            description = qemu.describe(f"/dev/fd/{descriptor}", timeout_seconds, descriptor)
        _check_description(description, "raw", source.name)
    except BaseException:
        source.close()
        raise
    return source


@contextlib.contextmanager
def _memory_file(head: bytes, size_bytes: int) -> Iterator[int]:
    """Have a file in memory of that size, which begins so and has a hole behind it."""
    descriptor = os.memfd_create("acstor-head", os.MFD_CLOEXEC)
    try:
        os.pwrite(descriptor, head, 0)
        os.ftruncate(descriptor, size_bytes)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_inspected(
    file: base.SourceFile,
    declared_format: str,
    timeout_seconds: float,
    limits: SizeLimits,
) -> base.ImageSource:
    if declared_format != "qcow2":
        source = raw.RawSource(file)
        limits.check(source.size_bytes, file.path)
        _check_content(source, declared_format, f"{file.path}")
        _check_description(
            qemu.describe(f"/dev/fd/{file.descriptor}", timeout_seconds, file.descriptor),
            "raw",
            file.path,
        )
        return source
    limits.check(_check_file(file, declared_format), f"the disk in {file.path}")
    description = qemu.describe(f"/dev/fd/{file.descriptor}", timeout_seconds, file.descriptor)
    _check_description(description, "qcow2", file.path)
    limits.check(description.size_bytes, f"the disk in {file.path}")
    disk = qcow2.Qcow2Source(file, timeout_seconds, description.size_bytes)
    try:
        what = f"the disk in {file.path}"
        limits.check(disk.size_bytes, what)
        _check_content(disk, declared_format, what)
        _check_description(qemu.describe(disk.nbd_url, timeout_seconds), "raw", what)
        if description.size_bytes > disk.size_bytes:
            raise exception.ImageRefusedError(
                f"{file.path}: qemu-img and qemu-nbd disagree about the size of the disk"
            )
    except BaseException:
        disk.close()
        raise
    return disk


def _check_file(file: base.SourceFile, declared_format: str) -> int:
    """Inspect the file itself; return the size of the disk that its header declares, bytes."""
    found = _inspect(raw.RawSource(file), file.path)
    if str(found) != declared_format:
        raise _refusal(found.NAME)(
            f"{file.path} is declared as {declared_format}, but its content is {found.NAME}",
            hint=f"register it with --disk-format {found.NAME}, if that is what it should be",
        )
    _check_safety(found, file.path)
    return int(found.virtual_size)


def _check_content(source: base.ImageSource, declared_format: str, what: str) -> None:
    """Inspect the disk's content, as a guest or Nova will see it."""
    found = _inspect(source, what)
    allowed = _CONTENT_FORMATS[declared_format]
    if found.NAME not in allowed:
        hint = "the content of a disk must not be a disk image of its own"
        if declared_format == "raw" and found.NAME in DECLARED_FORMATS:
            hint = f"register it with --disk-format {found.NAME}, if that is what it should be"
        kind = exception.ImageRefusedError if declared_format == "qcow2" else _refusal(found.NAME)
        raise kind(
            f"{what} is declared as {declared_format}, but its content is {found.NAME}", hint=hint
        )
    _check_safety(found, what)


def _refusal(found_format: str) -> type[exception.ImageRefusedError]:
    """Return the error for a file of another format than declared; an encrypted one has none."""
    is_encrypted = found_format == "luks"
    return exception.ImageRefusedError if is_encrypted else exception.ContentMismatchError


def _inspect(source: base.ImageSource, what: str) -> format_inspector.FileInspector:
    wrapper = format_inspector.InspectWrapper(cast(IO[bytes], _Reader(source)))
    try:
        while wrapper.format is None and wrapper.read(_READ_SIZE):
            pass
        wrapper.close()
        found = wrapper.format
    except format_inspector.ImageFormatError as error:
        candidates = {str(candidate): candidate for candidate in wrapper.formats or []}
        if candidates.keys() != {"iso", "gpt"}:
            raise exception.ImageRefusedError(f"{what}: {error}") from error
        # An ISO image that boots from a USB stick too; Nova's get_image_format decides likewise.
        found = candidates["iso"]
    if found is None:
        raise exception.ImageRefusedError(f"{what}: the format cannot be determined")
    return found


def _check_safety(found: format_inspector.FileInspector, what: str) -> None:
    try:
        found.safety_check()
    except format_inspector.SafetyCheckFailed as error:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in error.failures.items())
        raise exception.ImageRefusedError(f"{what} is unsafe: {reasons}") from error


def _check_description(description: qemu.ImageDescription, expected_format: str, what: str) -> None:
    if description.format != expected_format:
        raise exception.ImageRefusedError(
            f"{what}: QEMU takes it for {description.format}, not {expected_format}"
        )
    if description.backing_file:
        raise exception.ImageRefusedError(
            f"{what} has a backing file", hint="flatten it: qemu-img convert -O qcow2"
        )
    if description.data_file:
        raise exception.ImageRefusedError(
            f"{what} has an external data file", hint="flatten it: qemu-img convert -O qcow2"
        )
    if description.is_encrypted:
        raise exception.ImageRefusedError(f"{what} is encrypted")


class _Reader:
    """A source as the file-like object that the inspector reads, to a bounded length."""

    def __init__(self, source: base.ImageSource) -> None:
        self._source = source
        self._position = 0

    def read(self, size: int) -> bytes:
        size = min(size, _INSPECTED_SIZE_MAX - self._position)
        content = self._source.read(self._position, size) if size > 0 else b""
        self._position += len(content)
        return content
