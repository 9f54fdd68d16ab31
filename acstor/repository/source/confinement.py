"""Confining QEMU's tools, which read image files that nobody has reason to trust.

Each has limits of address space, processor time and open files, writes no file and no core, opens
no socket but unix sockets, ends with who started it, and runs as nobody where that is root. The one
that writes a version into a disk writes files, and is confined like the others in all else; so are
those that split an image, which write in one folder.
"""

import dataclasses
import functools
import logging
import os
import pwd
import stat
import subprocess
import sys

from acstor.repository.source import confined

LOG = logging.getLogger(__name__)

FILES_MAX = 256
"""Open files of a tool."""
NOBODY = 65534
"""User id of a tool where the system has no user ``nobody``."""
PROBE_TIMEOUT = 30.0
_MISSING = {
    "network": "they could open network connections: this machine has no filter of system calls",
    "user": "they run as root: setpriv of util-linux is missing",
    "folder": "they could write outside of their folder: this machine has no Landlock",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a tool."""

    address_space: int
    """Bytes."""
    cpu_seconds: int
    files: int = FILES_MAX


def confine(
    arguments: list[str],
    limits: Limits,
    descriptor: int | None = None,
    *,
    reads_all: bool = False,
    writes: bool = False,
    writes_in: str | None = None,
) -> list[str]:
    """Return the command line that runs ``arguments`` confined, a child of this process.

    :param descriptor: of the image file, which the tool opens again by ``/dev/fd``.
    :param reads_all: whether it is to read files of everybody in any case: those that the image is
        based on, where the image itself is trusted to name them.
    :param writes: whether it is to write that file, and read those of everybody; of a disk on this
        host whose guest is stopped.
    :param writes_in: folder in which it is to write, given to its user (:func:`give`).
    """
    user, group = tool_user() or (-1, -1)
    is_private = descriptor is not None and not _is_readable_by_all(descriptor)
    reads_all = user >= 0 and (reads_all or is_private)
    numbers = (os.getpid(), limits.address_space, limits.cpu_seconds, limits.files, user, group)
    launcher = [sys.executable, "-I", "-S", confined.__file__]
    if writes_in is not None:
        return [
            *launcher, *map(str, numbers), str(confined.WRITES_FOLDER), writes_in, *arguments
        ]  # fmt: skip
    access = confined.WRITES if writes else int(reads_all)
    return [*launcher, *map(str, numbers), str(access), *arguments]


def environment(temporary_folder: str | None = None) -> dict[str, str]:
    """Return the environment of a tool: nothing of this process's but where programs are."""
    fields = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        # Address space is limited, and glibc reserves 64 MiB of it for each arena.
        "MALLOC_ARENA_MAX": "2",
    }
    return fields | ({"TMPDIR": temporary_folder} if temporary_folder else {})


def give(folder: str) -> None:
    """Let the tools write to a folder that this process has made."""
    user = tool_user()
    if user is not None:
        os.chown(folder, *user)


@functools.cache
def tool_user() -> tuple[int, int] | None:
    """Return user and group that the tools run as; None: those of this process."""
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return NOBODY, NOBODY
    return nobody.pw_uid, nobody.pw_gid


@functools.cache
def warn_of_missing() -> tuple[str, ...]:
    """Log, once, what of the confinement this system does not allow; return that."""
    return _warned(confine([], Limits(1 << 30, 30)), "QEMU's tools, which read images of projects")


@functools.cache
def missing_of_folder() -> tuple[str, ...]:
    """Log, once, what of the confinement to a folder this system does not allow; return that."""
    probe = confine([], Limits(1 << 30, 30), writes_in=os.sep)
    return _warned(probe, "Tools that split images")


def _warned(probe: list[str], tools: str) -> tuple[str, ...]:
    done = subprocess.run(
        probe,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment(),
        timeout=PROBE_TIMEOUT,
        check=False,
    )
    missing = tuple(word for word in done.stdout.decode().split() if word in _MISSING)
    for word in missing:
        LOG.warning("%s: %s", tools, _MISSING[word])
    return missing


def _is_readable_by_all(descriptor: int) -> bool:
    return bool(os.fstat(descriptor).st_mode & stat.S_IROTH)
