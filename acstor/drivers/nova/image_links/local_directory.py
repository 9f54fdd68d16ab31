"""The directory of local files beside Nova's base files: whole images that links may lead to.

It is in Nova's directory of base files, so on its file system, and Nova looks at no directory
there. A file has its image's name once its content was compared with the image; whatever has
another name is not finished, and nothing ever leads to it.
"""

import contextlib
import errno
import os
import re
import stat
from dataclasses import dataclass

from acstor.drivers.nova.image_links.base_names import target_path
from acstor.drivers.nova.image_links.safe_paths import open_directory

DIRECTORY = "acstor"
"""Name of it in the directory of base files."""
PARTIAL_SUFFIX = ".part"
_SUFFIX = ".raw"
_FINISHED = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.raw")
FILE_MODE = 0o444
OPEN_MODE = 0o755
"""Mode of the directory where every user may read images."""
GROUP_MODE = 0o750
"""Mode of the directory where only a group may: libvirt gives files away, directories never."""


@dataclass(frozen=True)
class Space:
    """Room of a file system, bytes."""

    total_bytes: int
    free_bytes: int
    """Free for every user."""


def local_path(base_directory: str, image_id: str) -> str:
    """Return the path of an image's local file.

    :param base_directory: Nova's directory of base files.
    """
    return target_path(os.path.join(base_directory, DIRECTORY), image_id)


def is_whole(base_directory: str, image_id: str) -> bool:
    """Return whether an image's local file is there, a regular one."""
    try:
        return stat.S_ISREG(os.lstat(local_path(base_directory, image_id)).st_mode)
    except OSError:
        return False


class LocalDirectory:
    """Names and removes files there; follows no links but those of root.

    :param base_directory: Nova's directory of base files.
    """

    def __init__(self, base_directory: str) -> None:
        self._base_directory = base_directory
        self.path = os.path.join(base_directory, DIRECTORY)

    def make(self, group: int | None) -> None:
        """Make the directory, or change who may read in it.

        :param group: that reads images; None: every user does.
        :raises OSError: when it cannot be made, or something else is there.
        """
        parent = open_directory(self._base_directory)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(DIRECTORY, 0o700, dir_fd=parent)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            made = os.open(DIRECTORY, flags, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            self._admit(made, group)
        finally:
            os.close(made)

    def _admit(self, made: int, group: int | None) -> None:
        status = os.fstat(made)
        if status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it belongs to user {status.st_uid}", self.path)
        if group is not None and status.st_gid != group:
            os.fchown(made, -1, group)
        mode = OPEN_MODE if group is None else GROUP_MODE
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(made, mode)

    def opened(self) -> int:
        """Open the directory; the caller closes the descriptor.

        :raises OSError: when it is not there, or is of another user.
        """
        place = open_directory(self.path)
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            descriptor = os.open(f"/proc/self/fd/{place}", flags)
        finally:
            os.close(place)
        owner = os.fstat(descriptor).st_uid
        if owner != os.geteuid():
            os.close(descriptor)
            raise OSError(errno.EPERM, f"it belongs to user {owner}", self.path)
        return descriptor

    def names(self) -> list[str]:
        """Return the names in it, none where it is not there.

        :raises OSError: when it cannot be read.
        """
        try:
            descriptor = self.opened()
        except FileNotFoundError:
            return []
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def images(self) -> frozenset[str]:
        """Return the ids of the images that have a finished file there.

        :raises OSError: when it cannot be read.
        """
        images = map(image_of_file, self.names())
        return frozenset(image_id for image_id in images if image_id is not None)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there; who has it open goes on with it.

        :raises OSError: when it cannot be removed.
        """
        try:
            descriptor = self.opened()
        except FileNotFoundError:
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def space(self) -> Space:
        """Return the room of the file system.

        :raises OSError: when it cannot be told.
        """
        found = os.statvfs(self._base_directory)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def file_name(image_id: str) -> str:
    """Return the name of an image's finished file."""
    return f"{image_id}{_SUFFIX}"


def image_of_file(name: str) -> str | None:
    """Return the image of which a finished file has this name; None: it is none."""
    match = _FINISHED.fullmatch(name)
    return None if match is None else match[1]


def partial_name(image_id: str) -> str:
    """Return the name of an image's file that is not finished."""
    return f"{image_id}{_SUFFIX}{PARTIAL_SUFFIX}"
