"""Facts in the header of a qcow2 file that forbid writing a version into it.

Source: QEMU, docs/interop/qcow2.txt, "Header". The file is the host's own: a guest cannot write to
its header. QEMU looks at all of it again when it opens the image.
"""

import os
import struct
from dataclasses import dataclass

from acstor import exception
from acstor.drivers.nova.image_links.qcow2_header import MAGIC

_HEADER = struct.Struct(">4sI16xQI24xI8x")
"""Magic and version; the size of the disk; the encryption; the number of snapshots."""
_FEATURES = struct.Struct(">Q")
_FEATURES_OFFSET = 72
_CORRUPT, _EXTERNAL_DATA = 1 << 1, 1 << 2
"""Incompatible features."""


@dataclass(frozen=True, slots=True)
class Qcow2Facts:
    """Facts about one image."""

    encryption: int = 0
    """Method; 0: none."""
    snapshots: int = 0
    """Snapshots inside the image."""
    features: int = 0
    """Incompatible features, by the bit."""
    size_bytes: int = 0
    """Size of the disk that it holds."""


def read_facts(descriptor: int, path: str) -> Qcow2Facts:
    """Read the header of an image.

    :raises UnsupportedError: when it is no qcow2 image.
    :raises UnavailableError: when it cannot be read.
    """
    try:
        head = os.pread(descriptor, _FEATURES_OFFSET + _FEATURES.size, 0)
    except OSError as error:
        raise exception.UnavailableError(f"{path}: {error.strerror}") from error
    if len(head) < _FEATURES_OFFSET:
        raise exception.UnsupportedError(f"{path} is no qcow2 image")
    magic, version, size_bytes, encryption, snapshots = _HEADER.unpack_from(head)
    if magic != MAGIC or version not in (2, 3):
        raise exception.UnsupportedError(f"{path} is no qcow2 image of version 2 or 3")
    has_features = version == 3 and len(head) >= _FEATURES_OFFSET + _FEATURES.size
    (features,) = _FEATURES.unpack_from(head, _FEATURES_OFFSET) if has_features else (0,)
    return Qcow2Facts(encryption, snapshots, features, size_bytes)


def require_writable(path: str, facts: Qcow2Facts) -> None:
    """Refuse an image into which no version is written.

    :raises UnsupportedError: saying why.
    """
    rules = (
        (facts.encryption != 0, "it is encrypted"),
        (facts.snapshots != 0, f"it has {facts.snapshots} snapshots inside"),
        (bool(facts.features & _CORRUPT), "QEMU has marked it as corrupt"),
        (bool(facts.features & _EXTERNAL_DATA), "its data is in another file"),
    )
    for applies, reason in rules:
        if applies:
            raise exception.UnsupportedError(
                f"no version is written into {path}: {reason}",
                hint="ask for the method rebuild",
            )
