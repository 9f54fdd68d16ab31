"""The changes that are made in Nova's directories: one method per system call.

A seam: tests put a faulty implementation in its place, which dies before or after any of them.
None follows a link in the last part of a path, and before that only links of root's
(:mod:`acstor.drivers.nova.image_links.safe_paths`).
"""

import errno
import os
import stat

from acstor.drivers.nova.image_links.safe_paths import opened_parent


class FileOperations:
    """Calls the kernel; every method takes absolute paths and raises ``OSError`` as it does."""

    def symlink(self, target: str, path: str) -> None:
        """Make a link; fails where anything is at ``path``."""
        with opened_parent(path) as (directory, name):
            os.symlink(target, name, dir_fd=directory)

    def change_owner(self, path: str, user: int, group: int) -> None:
        """Change the owner of whatever is at ``path``, of a link itself.

        :raises OSError: EPERM, too, for a file that has several names: one of them may be in a
            place where its owner matters.
        """
        with opened_parent(path) as (directory, name):
            place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            status = os.fstat(place)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                raise OSError(errno.EPERM, "a file with several names is not given away", path)
            # What was looked at, not what has the name by now (fchown refuses an O_PATH one).
            os.chown(f"/proc/self/fd/{place}", user, group)
        finally:
            os.close(place)

    def unlink(self, path: str) -> None:
        """Remove a file or a link."""
        with opened_parent(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def make_directory(self, path: str) -> None:
        """Make a directory that everybody may read."""
        with opened_parent(path) as (directory, name):
            os.mkdir(name, 0o700, dir_fd=directory)
            made = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory
            )
            try:
                os.fchmod(made, 0o755)  # as Nova's own, whatever the umask
            finally:
                os.close(made)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with opened_parent(path) as (directory, name):
            os.rmdir(name, dir_fd=directory)

    def rename(self, former: str, path: str) -> None:
        """Rename a link, or a directory; a link, or an empty one, that is there is replaced."""
        with (
            opened_parent(former) as (former_directory, former_name),
            opened_parent(path) as (directory, name),
        ):
            os.rename(former_name, name, src_dir_fd=former_directory, dst_dir_fd=directory)

    def make_file(self, path: str) -> None:
        """Make an empty file; fails where anything is at ``path``."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with opened_parent(path) as (directory, name):
            os.close(os.open(name, flags, 0o644, dir_fd=directory))

    def hard_link(self, existing: str, path: str) -> None:
        """Give a file a second name; fails where anything is at ``path``."""
        with (
            opened_parent(existing) as (existing_directory, existing_name),
            opened_parent(path) as (directory, name),
        ):
            os.link(
                existing_name,
                name,
                src_dir_fd=existing_directory,
                dst_dir_fd=directory,
                follow_symlinks=False,
            )

    def open_file(self, path: str) -> int:
        """Open a regular file that is there for reading and writing; return its descriptor.

        :raises OSError: EINVAL, too, for anything else than a regular file.
        """
        # Without waiting for whoever has the other end of a pipe.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with opened_parent(path) as (directory, name):
            # A device does something when it is opened, so what it is comes first.
            _refuse_other_than_file(os.lstat(name, dir_fd=directory), path)
            descriptor = os.open(name, flags, dir_fd=directory)
        try:
            _refuse_other_than_file(os.fstat(descriptor), path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _refuse_other_than_file(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "no regular file", path)
