"""Paths that root follows although somebody else may own directories on the way.

The data plane's user may own directories near it. Were one of them on the way, a link put in its
place would have root mount over any directory of the host.
"""

import errno
import os
import stat
from collections.abc import Callable

from acstor import exception

_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_MAX = 40
"""Links of one path, as in the kernel."""
_WRITE_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def require_root_alone(path: str) -> None:
    """Make sure that only root can change where the directories above ``path`` are.

    ``path`` itself is not looked at: a file system may be mounted there.

    :param path: absolute.
    :raises InvalidError: names the directory that is somebody else's.
    :raises OSError: when a directory is not there, or too many links are in the way.
    """
    os.close(_walk(os.path.dirname(os.path.abspath(path)), _require_root))


def open_place(path: str) -> int:
    """Open what is at ``path`` to look at it and to give it away.

    No link is followed but root's, in a directory in which root alone may write.

    :param path: absolute.
    :returns: a descriptor (``O_PATH``) that the caller closes.
    :raises OSError: ELOOP for another link, or too many of them; else as the kernel does.
    """
    return _walk(os.path.abspath(path), lambda *_: None)


def _walk(path: str, look: Callable[[os.stat_result, str], None]) -> int:
    """Open a path, component by component.

    :param look: called with the status and path of each place on the way, the last one included.
    """
    waiting = _components(path)
    followed = 0
    here, here_path = os.open("/", _PLACE), "/"
    try:
        while True:
            look(os.fstat(here), here_path)
            if not waiting:
                return here
            name = waiting.pop()
            there = os.open(name, _PLACE, dir_fd=here)
            status = os.fstat(there)
            if not stat.S_ISLNK(status.st_mode):
                os.close(here)
                here, here_path = there, os.path.join(here_path, name)
                continue
            target = os.readlink("", dir_fd=there)
            os.close(there)
            followed += 1
            # Root's links in root's directories: elsewhere one may have another's name for it.
            folder = os.fstat(here)
            is_root_s = status.st_uid == folder.st_uid == 0
            if followed > _LINKS_MAX or not is_root_s or folder.st_mode & _WRITE_FOR_OTHERS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.path.join(here_path, name))
            waiting += _components(target)
            if target.startswith("/"):
                os.close(here)
                here, here_path = os.open("/", _PLACE), "/"
    except BaseException:
        os.close(here)
        raise


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


def _components(path: str) -> list[str]:
    """Return the components of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]
