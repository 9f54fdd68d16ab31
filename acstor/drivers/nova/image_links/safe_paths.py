"""Opening directories that an ordinary user may rearrange, as a more powerful one.

Nova's user owns ``instances_path``, often what is above it, and may put a link in the place of any
directory there, at any moment. Root would then make, give away and remove things wherever that link
leads. A link that root made is the operator's (another disk for the instances) and is followed.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from acstor import path_walk


@contextlib.contextmanager
def opened_parent(path: str) -> Iterator[tuple[int, str]]:
    """Give the descriptor of the directory that ``path`` is in, and the name there.

    :raises OSError: as :func:`open_directory`.
    """
    directory, name = os.path.split(path)
    descriptor = open_directory(directory)
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_directory(path: str) -> int:
    """Open a directory, following no link but those of root and of this process's own user.

    :param path: absolute.
    :returns: a descriptor that the caller closes.
    :raises OSError: ELOOP for a link of somebody else, or too many links; else as the kernel does.
    """
    try:
        place = path_walk.walk(path, _of_others)
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, error.strerror, path) from error
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        os.close(place)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return place


def _of_others(path: str, link: os.stat_result, folder: os.stat_result) -> OSError | None:
    if link.st_uid in (0, os.geteuid()):
        return None
    reason = f"a link of user {link.st_uid} is there, and only links of root are followed"
    return OSError(errno.ELOOP, reason, path)
