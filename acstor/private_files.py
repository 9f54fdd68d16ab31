"""Files that have to belong to the right user: keys, tokens, and what is believed.

No message tells what is in one.
"""

import functools
import os
import stat
from collections.abc import Callable

from acstor import exception

FILE_SIZE_MAX = 16 << 10
"""Largest file that is read, bytes."""

_OTHERS_READ_OR_WRITE = stat.S_IRWXG | stat.S_IRWXO


def read_checked(path: str, what: str, check: Callable[[str, os.stat_result], None]) -> bytes:
    """Return what is in a regular file, once its owner and mode are checked.

    :param what: in words, for messages.
    :raises ConfigurationError: when it cannot be read, is none, is longer than
        :data:`FILE_SIZE_MAX`, or as ``check`` raises.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_SIZE_MAX:
                raise exception.ConfigurationError(f"{path} is no file with a {what}")
            check(path, found)
            return file.read(FILE_SIZE_MAX)
    except OSError as error:
        raise exception.ConfigurationError(
            f"{what} {path} cannot be read: {error.strerror}",
            hint="correct the path, or the owner and mode of the file",
        ) from error


def read_private(path: str, what: str) -> bytes:
    """Return what is in a file that nobody else can read.

    :raises ConfigurationError: when it cannot be read, is none, others than its owner may read or
        write it, or its owner is neither root nor the user who runs this (root may use any).
    """
    return read_checked(path, what, functools.partial(_check_private, what))


def _check_private(what: str, path: str, found: os.stat_result) -> None:
    if found.st_mode & _OTHERS_READ_OR_WRITE:
        raise exception.ConfigurationError(
            f"{what} {path} has mode {stat.S_IMODE(found.st_mode):04o}, others may read it",
            hint=f"chmod 0600 {path}; and when others could log in there, make a new one",
        )
    if os.geteuid() not in {0, found.st_uid} and found.st_uid != 0:
        raise exception.ConfigurationError(
            f"{what} {path} belongs to user {found.st_uid}, who may read it",
            hint="give it to root or to the user who runs this service",
        )
