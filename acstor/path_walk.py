"""Walking a path component by component, past links that somebody may have put in its place.

A process that may more than those who own directories on the way (root, mostly) decides of each
link whether it is followed. What it decided of stays the same: each place is held by a descriptor.
"""

import errno
import os
import stat
from collections.abc import Callable

_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_MAX = 40
"""Links of one path, as in the kernel."""

Refusal = Callable[[str, os.stat_result, os.stat_result], OSError | None]
"""Told the path of a link, its status and that of the directory it is in; returns the error with
which it is not followed, None: it is."""


def too_many_links(path: str) -> OSError:
    """Return the error of the kernel for a link that is not followed."""
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def walk(
    path: str,
    refusal: Refusal,
    look: Callable[[os.stat_result, str], None] = lambda status, here: None,
) -> int:
    """Open what is at a path to look at it.

    :param path: absolute.
    :param refusal: asked of each link on the way, the last component included.
    :param look: called with the status and path of each place on the way, the last one included.
    :returns: a descriptor (``O_PATH``) that the caller closes.
    :raises OSError: that of ``refusal``; ELOOP for too many links; else as the kernel does.
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
            there, there_path = os.open(name, _PLACE, dir_fd=here), os.path.join(here_path, name)
            try:
                there = _mounted(there, name, here)
                target = _target(there, there_path, here, refusal)
            except BaseException:
                os.close(there)
                raise
            if target is None:
                os.close(here)
                here, here_path = there, there_path
                continue
            os.close(there)
            followed += 1
            if followed > _LINKS_MAX:
                raise too_many_links(there_path)
            waiting += _components(target)
            if target.startswith("/"):
                os.close(here)
                here, here_path = os.open("/", _PLACE), "/"
    except BaseException:
        os.close(here)
        raise


def _mounted(place: int, name: str, folder: int) -> int:
    """Return a place, or what is mounted there at its first use: by an automount unit, say.

    Opening it to look at it is no use, and below it there would be nothing.

    :returns: ``place``, or another descriptor in its stead; then that one is closed.
    :raises OSError: when it cannot be mounted.
    """
    status = os.fstat(place)
    if not stat.S_ISDIR(status.st_mode) or status.st_dev == os.fstat(folder).st_dev:
        return place
    there = os.open(name, _PLACE | os.O_DIRECTORY, dir_fd=folder)
    os.close(place)
    return there


def _target(place: int, path: str, folder: int, refusal: Refusal) -> str | None:
    """Return where a link leads that is followed; None: it is no link."""
    status = os.fstat(place)
    if not stat.S_ISLNK(status.st_mode):
        return None
    if (error := refusal(path, status, os.fstat(folder))) is not None:
        raise error
    return os.readlink("", dir_fd=place)


def _components(path: str) -> list[str]:
    """Return the components of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]
