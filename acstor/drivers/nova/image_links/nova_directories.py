"""The directories and lock files that Nova and ACStor share below instances_path.

Whoever comes first makes them. The agent usually runs as root and nova-compute does not, so what
the agent makes must appear with the owner that Nova's would have had, or not at all: a lock file
of root's would keep Nova from starting instances. Each is therefore made under a temporary name,
given away, and then put in its place.
"""

import contextlib
import os
import stat

from acstor import exception
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.nova_settings import NovaSettings

TEMPORARY_PREFIX = ".acstor-"


class NovaDirectories:
    """Makes what is missing of them.

    :param host: name of this host; instances_path may be shared with others.
    """

    def __init__(self, settings: NovaSettings, host: str, files: FileOperations) -> None:
        self._settings = settings
        # No host's name has an @, so that none begins with another one and this.
        self._temporary = f"{TEMPORARY_PREFIX}{host}@"
        self._files = files

    def prepare(self) -> None:
        """Make the directories of base files and of locks, and sweep what a killed run left.

        :raises NotFoundError: when there is no instances_path.
        :raises OSError: when one cannot be made.
        """
        settings = self._settings
        try:
            owner = os.stat(settings.instances_path)
        except FileNotFoundError as error:
            raise exception.NotFoundError(
                f"Nova's instances_path {settings.instances_path} does not exist",
                hint="start nova-compute once, or correct [image_links] nova_config_file",
            ) from error
        self.sweep()
        for path in (settings.base_directory, settings.lock_directory):
            if not os.path.isdir(path):
                self._make_directory(path, owner)

    def sweep(self) -> None:
        """Remove what was made under a temporary name by a run that was killed."""
        settings = self._settings
        for directory in (
            settings.instances_path,
            settings.lock_directory,
            settings.base_directory,
        ):
            try:
                names = os.listdir(directory)
            except FileNotFoundError:
                continue
            for name in names:
                if name.startswith(self._temporary):
                    self._remove(os.path.join(directory, name))

    def open_lock_file(self, path: str) -> int | None:
        """Open a lock file, after making one that Nova's user may open where there is none.

        :returns: a descriptor that the caller closes; None: Nova removed it meanwhile.
        :raises OSError: when it cannot be made or opened, or is no regular file.
        """
        if not os.path.lexists(path):
            self._make_lock_file(path)
        try:
            return self._files.open_file(path)
        except FileNotFoundError:
            return None

    def temporary_link(self, name: str) -> str:
        """Return the path of a link that is to take the place of a base file's."""
        return os.path.join(self._settings.base_directory, self._temporary + name)

    def give(self, path: str, owner: os.stat_result) -> None:
        """Give what is at ``path`` to the owner of something else, if it is not theirs already."""
        found = os.lstat(path)
        if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
            self._files.change_owner(path, owner.st_uid, owner.st_gid)

    def _make_lock_file(self, path: str) -> None:
        directory = os.path.dirname(path)
        temporary = os.path.join(directory, self._temporary + os.path.basename(path))
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(temporary)
        self._files.make_file(temporary)
        try:
            self.give(temporary, os.stat(directory))
            # Fails where Nova was quicker, whose file is as good.
            with contextlib.suppress(FileExistsError):
                self._files.hard_link(temporary, path)
        finally:
            self._files.unlink(temporary)

    def _make_directory(self, path: str, owner: os.stat_result) -> None:
        # Beside the directory, so that the last step is a rename: it cannot be half done.
        temporary = os.path.join(
            self._settings.instances_path, self._temporary + os.path.basename(path)
        )
        self._files.make_directory(temporary)
        self.give(temporary, owner)
        try:
            self._files.rename(temporary, path)
        except OSError:
            self._files.remove_directory(temporary)
            if not os.path.isdir(path):  # else Nova was quicker, and has used it already
                raise

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                self._files.remove_directory(path)
            else:
                self._files.unlink(path)
