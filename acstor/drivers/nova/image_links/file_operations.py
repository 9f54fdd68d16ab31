"""The changes that are made in Nova's directories: one method per system call.

A seam: tests put a faulty implementation in its place, which dies before or after any of them.
None follows a link in the last part of a path.
"""

import os


class FileOperations:
    """Calls the kernel; every method raises ``OSError`` as it does."""

    def symlink(self, target: str, path: str) -> None:
        """Make a link; fails where anything is at ``path``."""
        os.symlink(target, path)

    def change_owner(self, path: str, user: int, group: int) -> None:
        """Change the owner of whatever is at ``path``, of a link itself."""
        os.chown(path, user, group, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove a file or a link."""
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        """Make a directory that everybody may read."""
        os.mkdir(path)
        os.chmod(path, 0o755)  # noqa: S103 - as Nova's own, whatever the umask

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def rename(self, former: str, path: str) -> None:
        """Rename a directory; an empty one that is there already is replaced."""
        os.rename(former, path)

    def make_file(self, path: str) -> None:
        """Make an empty file; fails where anything is at ``path``."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o644))

    def hard_link(self, existing: str, path: str) -> None:
        """Give a file a second name; fails where anything is at ``path``."""
        os.link(existing, path, follow_symlinks=False)
