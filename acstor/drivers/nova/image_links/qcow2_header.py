"""Reading from a qcow2 file which backing file it has: the header and that name, nothing else.

The files belong to guests that run: they are opened for reading only, nothing is locked, and what
the header says of sizes is checked before it is believed (QEMU ``docs/interop/qcow2.txt``).
"""

import os
import stat
import struct
from typing import Any

from acstor import untrusted_json

MAGIC = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQII")  # magic, version, backing offset, backing size, cluster bits
_VERSIONS = (2, 3)
_CLUSTER_BITS_MIN, _CLUSTER_BITS_MAX = 9, 21
BACKING_NAME_BYTES_MAX = 1023
_JSON_PREFIX = "json:"
_FILE_PREFIX = "file:"
_JSON_DEPTH_MAX = 16


def read_backing_names(path: str) -> list[str]:
    """Return the paths of files that a disk image refers to as its backing file.

    A relative path is relative to the image's directory; it is returned absolute. A name in
    QEMU's JSON form may contain several. Empty for whatever is no qcow2 file with a backing file,
    damaged headers included: QEMU opens none of these.

    :raises OSError: when the file cannot be read; ``FileNotFoundError`` when it is gone.
    """
    # Not through a link, and without waiting for whoever holds the other end of a pipe.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return []
        name = _backing_name(descriptor, status.st_size)
    finally:
        os.close(descriptor)
    if name is None:
        return []
    directory = os.path.dirname(path)
    return [os.path.normpath(os.path.join(directory, part)) for part in _paths(name)]


def _backing_name(descriptor: int, file_size: int) -> str | None:
    head = os.pread(descriptor, _HEADER.size, 0)
    if len(head) < _HEADER.size:
        return None
    magic, version, offset, size, cluster_bits = _HEADER.unpack(head)
    if magic != MAGIC or version not in _VERSIONS:
        return None
    if not 0 < size <= BACKING_NAME_BYTES_MAX:
        return None
    if not _CLUSTER_BITS_MIN <= cluster_bits <= _CLUSTER_BITS_MAX:
        return None
    # The name lies in the first cluster, after the header.
    end = min(1 << cluster_bits, file_size)
    if offset < _HEADER.size or offset > end - size:
        return None
    name = os.pread(descriptor, size, offset)
    return os.fsdecode(name) if len(name) == size and b"\0" not in name else None


def _paths(name: str) -> list[str]:
    """Return the file names in a backing file's name."""
    if not name.startswith(_JSON_PREFIX):
        return [name.removeprefix(_FILE_PREFIX)]
    try:
        described = untrusted_json.load(name.removeprefix(_JSON_PREFIX), "the name")
    except ValueError:
        return []
    return list(_file_names(described, _JSON_DEPTH_MAX))


def _file_names(described: Any, depth: int) -> list[str]:
    """Return the values of ``filename`` and ``file.filename`` anywhere in a block description."""
    if depth == 0 or not isinstance(described, dict):
        return []
    found = []
    for key, value in described.items():
        if isinstance(value, str) and key.rpartition(".")[2] == "filename":
            found.append(value.removeprefix(_FILE_PREFIX))
        else:
            found += _file_names(value, depth - 1)
    return found
