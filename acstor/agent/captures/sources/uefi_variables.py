"""UEFI variables of a guest, as libvirt keeps them in a file of their own.

The file, or its folder, may be writable by QEMU's user: whatever is there is bounded, and no pipe
keeps its reader waiting.
"""

import os
import stat

from acstor import exception
from acstor.repository.versions.whole_capture import PART_SIZE_MAX

_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_nvram(path: str | None) -> bytes | None:
    """Return the UEFI variables of a guest; None: it has none, or their file is not there.

    :raises UnavailableError: when they cannot be read, so that no version is without them.
    :raises UnsupportedError: when the file is no regular one, or longer than any.
    """
    if path is None:
        return None
    try:
        descriptor = os.open(path, _READING)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise exception.UnavailableError(
            f"{path}: {error.strerror}", hint="run acstor-agent as root"
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise exception.UnsupportedError(f"{path}, of UEFI variables, is no regular file")
        content = file.read(PART_SIZE_MAX + 1)
    if len(content) > PART_SIZE_MAX:
        raise exception.UnsupportedError(f"{path} has more than {PART_SIZE_MAX} bytes")
    return content or None
