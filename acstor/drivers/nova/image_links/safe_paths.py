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

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_MAX = 40
"""Links of one path, as in the kernel."""


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
    waiting = _components(path)
    links = 0
    here = os.open("/", _DIRECTORY)
    try:
        while waiting:
            name = waiting.pop()
            target = _followed(here, name, path)
            if target is None:
                there = os.open(name, _DIRECTORY, dir_fd=here)
            else:
                links += 1
                if links > _LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                waiting += _components(target)
                there = os.open("/", _DIRECTORY) if target.startswith("/") else os.dup(here)
            os.close(here)
            here = there
    except FileNotFoundError as error:
        os.close(here)
        raise FileNotFoundError(errno.ENOENT, error.strerror, path) from error
    except BaseException:
        os.close(here)
        raise
    return here


def _components(path: str) -> list[str]:
    """Return the components of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _followed(directory: int, name: str, path: str) -> str | None:
    """Return where a link leads that may be followed; None: ``name`` is no link."""
    # One descriptor for both questions: between them somebody could put another link there.
    place = os.open(name, _PLACE, dir_fd=directory)
    try:
        status = os.fstat(place)
        if not stat.S_ISLNK(status.st_mode):
            return None
        if status.st_uid not in (0, os.geteuid()):
            reason = (
                f"{name} is a link of user {status.st_uid}, and only links of root are followed"
            )
            raise OSError(errno.ELOOP, reason, path)
        return os.readlink("", dir_fd=place)
    finally:
        os.close(place)
