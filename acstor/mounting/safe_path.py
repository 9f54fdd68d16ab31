"""Paths that root follows although somebody else may own directories on the way.

The data plane's user may own directories near it. Were one of them on the way, a link put in its
place would have root mount over any directory of the host.
"""

import errno
import os
import stat

from acstor import exception, path_walk

_WRITE_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def require_root_alone(path: str) -> None:
    """Make sure that only root can change where the directories above ``path`` are.

    ``path`` itself is not looked at: a file system may be mounted there.

    :param path: absolute.
    :raises InvalidError: names the directory that is somebody else's.
    :raises OSError: when a directory is not there, or too many links are in the way.
    """
    above = os.path.dirname(os.path.abspath(path))
    os.close(path_walk.walk(above, _only_roots, _require_root))


def open_place(path: str) -> int:
    """Open what is at ``path`` to look at it and to give it away.

    No link is followed but root's, in a directory in which root alone may write.

    :param path: absolute.
    :returns: a descriptor (``O_PATH``) that the caller closes.
    :raises OSError: ELOOP for another link, or too many of them; else as the kernel does.
    """
    return path_walk.walk(os.path.abspath(path), _only_roots)


def require_directory_of_root(path: str) -> None:
    """Make sure that ``path``, on which nothing is mounted, is a directory of root and no link.

    :raises InvalidError: when it is something else.
    :raises OSError: when it cannot be looked at.
    """
    status = os.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0:
        raise exception.InvalidError(
            f"{path} is not a directory of root", hint=f"make it one: chown root {path}"
        )


def _require_root(status: os.stat_result, path: str) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    is_open = status.st_mode & _WRITE_FOR_OTHERS and not status.st_mode & stat.S_ISVTX
    if status.st_uid != 0 or is_open:
        raise exception.InvalidError(
            f"{path} (owner {status.st_uid}, mode {status.st_mode & 0o7777:04o}) is above the "
            "mount point, and others than root could put another directory in its place",
            hint=f"chown root {path}; chmod go-w {path}",
        )


def _only_roots(path: str, link: os.stat_result, folder: os.stat_result) -> OSError | None:
    # Root's links in root's directories: elsewhere one may have another's name for it.
    is_root_s = link.st_uid == folder.st_uid == 0
    if is_root_s and not folder.st_mode & _WRITE_FOR_OTHERS:
        return None
    return path_walk.too_many_links(path)
