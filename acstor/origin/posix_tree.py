"""The directory tree of a POSIX origin: durable folders, temporary files, and whether it is there.

What is absent is absent only while the tree itself is there: when the file system was unmounted
under a running process, or replaced by an empty one, every name would seem deleted.
"""

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence

from acstor import exception
from acstor.origin import base, posix_write
from acstor.origin.posix_errors import map_errors
from acstor.origin.posix_presence import is_folder, is_there
from acstor.origin.posix_reserve import Reserve, freeing

TEMPORARY_AGE_SECONDS = 24 * 3600.0
"""Age from which a temporary file is taken for a crashed writer's."""

TEMPORARY = ".temporary"
RESERVE = ".reserve"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class PosixTree:
    """Folders and temporary files below ``root``.

    :param root: absolute path of an existing directory.
    :param reserve: of another tree of the same file system; None: its own.
    """

    def __init__(self, root: str, reserve: Reserve | None = None) -> None:
        """Keep where the tree is."""
        self.root = root
        self.reserve = reserve or Reserve(os.path.join(root, RESERVE))
        self._durable_folders = {root}
        self._lock = threading.Lock()
        self._was_seen = False

    def path(self, *parts: str) -> str:
        """Return an absolute path below the root."""
        return os.path.join(self.root, *parts)

    def check_there(self) -> None:
        """Refuse to take what is absent for deleted where the whole tree is gone.

        The folder of temporary files is made with the first object or ref and never removed.

        :raises UnavailableError: when it was there before and is not any more, or cannot be told.
        """
        # As it was before the look: another thread may make the folder just after it.
        was_seen = self._was_seen
        with map_errors(f"looking for the origin's directory {self.root}"):
            if is_folder(self.path(TEMPORARY)):
                self._was_seen = True
                return
            is_gone = was_seen or not is_folder(self.root)
        if is_gone:
            self.forget_folders()
            raise exception.UnavailableError(
                f"what was in the origin's directory {self.root} is not there any more",
                hint="check that the origin's file system is still mounted",
            )

    def forget_folders(self) -> None:
        """Look at every folder again before anything is stored in it."""
        with self._lock:
            self._durable_folders = {self.root}

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents, and their names durable, once per process.

        :raises OSError: when that fails.
        :raises UnavailableError: when the whole tree is gone. What was stored at an empty
            mount point would be nowhere once the file system is back.
        """
        if path in self._durable_folders:
            return
        self.check_there()
        with self._opened(path):
            pass

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Open a folder, made with its parents where they are not known to be there.

        From the root down, and through no link: who may write to the root could have a command
        that root runs make folders anywhere, and give them to the root's owner.

        :raises OSError: when one cannot be made, or a link is in the way.
        """
        with self._walked(path, self._enter) as descriptor:
            yield descriptor

    @contextlib.contextmanager
    def _walked(self, path: str, enter: Callable[[int, str, str], int]) -> Iterator[int]:
        """Open a folder from the root down.

        :param enter: opens a folder: takes the descriptor of the one that it is in, its name there,
            and its path.
        """
        below = self.root
        descriptor = os.open(below, _FOLDER)
        try:
            for name in os.path.relpath(path, self.root).split(os.sep):
                if name != os.curdir:
                    below = os.path.join(below, name)
                    parent, descriptor = descriptor, enter(descriptor, name, below)
                    os.close(parent)
            yield descriptor
        finally:
            os.close(descriptor)

    def _enter(self, parent: int, name: str, path: str) -> int:
        """Open a folder in the folder ``parent``; make it, and its name durable, if need be."""
        if path in self._durable_folders:
            return _enter_folder(parent, name, path)
        is_made = False
        with contextlib.suppress(FileExistsError):
            self.reserve.spend_on(lambda: os.mkdir(name, 0o755, dir_fd=parent))
            is_made = True
        descriptor = _enter_folder(parent, name, path)
        try:
            if is_made:
                self._give(descriptor, path)
            os.fsync(parent)
        except BaseException:
            os.close(descriptor)
            raise
        with self._lock:
            self._durable_folders.add(path)
        return descriptor

    @contextlib.contextmanager
    def through_no_link(self, path: str) -> Iterator[str]:
        """Yield a path of a folder that leads through no link, whatever becomes of those above.

        Whoever may write to the root directory could have root write and remove files elsewhere.
        For anybody else, who may do no more than that one, it is ``path``: each folder on the way
        costs a request to a server.

        :raises OSError: when it is not there, or a link is in the way.
        """
        if os.geteuid() != 0:
            yield path
            return
        with self._walked(path, _enter_folder) as descriptor:
            yield f"/proc/self/fd/{descriptor}"

    def forget_folder(self, path: str) -> None:
        """Expect a folder to vanish."""
        with self._lock:
            self._durable_folders.discard(path)

    def write_temporary(self, buffers: Sequence[base.Buffer]) -> str:
        """Write a file that has no name of its own yet, durably; return its path.

        :raises OSError: when that fails; the file is then removed as far as possible.
        """
        folder = self._temporary_folder()
        views = base.as_views(buffers)
        with self.through_no_link(folder) as there:
            path = self.reserve.spend_on(lambda: posix_write.write_temporary(there, views))
        return os.path.join(folder, os.path.basename(path))

    def make_temporary_folder(self) -> str:
        """Make a folder that has no name of its own yet; return its path.

        :raises OSError: when that fails.
        """
        name = posix_write.unique_name()
        with self._opened(self._temporary_folder()) as folder:
            self.reserve.spend_on(lambda: os.mkdir(name, 0o755, dir_fd=folder))
            self._give_in(folder, name)
        return self.path(TEMPORARY, name)

    def give_to_owner(self, path: str) -> None:
        """Let whoever may write to the root directory write to what was made at ``path``, too.

        A command that root runs would otherwise keep the services, which are others, from it.

        :raises OSError: when that fails.
        """
        with self._opened(os.path.dirname(path)) as folder:
            self._give_in(folder, os.path.basename(path))

    def _give_in(self, folder: int, name: str) -> None:
        # By a descriptor, and through no link: what has the name may be another's by now.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
        try:
            self._give(descriptor, name)
        finally:
            os.close(descriptor)

    def _give(self, descriptor: int, path: str) -> None:
        root, made = os.stat(self.root), os.fstat(descriptor)
        if not stat.S_ISREG(made.st_mode) and not stat.S_ISDIR(made.st_mode):
            raise PermissionError(errno.EPERM, "neither a file nor a folder", path)
        wanted = made.st_mode | root.st_mode & _WRITE_FOR_OTHERS
        # EPERM: a server takes root for somebody else, so that it is not root's to give away; or
        # the service may not do it (systemd), and goes on as before.
        if wanted != made.st_mode:
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, stat.S_IMODE(wanted))
        is_other = (made.st_uid, made.st_gid) != (root.st_uid, root.st_gid)
        if is_other and os.geteuid() == 0:
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, root.st_uid, root.st_gid)

    def remove_temporary_folder(self, path: str) -> bool:
        """Remove a folder that :meth:`make_temporary_folder` made; return whether that was done.

        It gets another name first. Who made it and slept may wake in the midst, and would give it
        its own name, while what is in it went on vanishing.

        :raises OSError: when it cannot be renamed.
        """
        claimed = os.path.join(os.path.dirname(path), posix_write.unique_name())
        try:
            os.rename(path, claimed)
        except FileNotFoundError:
            return False
        shutil.rmtree(claimed, ignore_errors=True)
        return not is_there(claimed)

    def temporaries_older_than(self, seconds: float) -> Iterator[os.DirEntry[str]]:
        """Yield temporary files and folders of that age.

        Ages are differences of the file system's own time stamps: a file is written now and
        compared with, so that no host's clock matters. Where root asks, their paths lead through
        no link until the next one is asked for.

        :raises OSError: when they cannot be listed.
        """
        with freeing(is_beginning=True):
            probe = self.write_temporary([b""])
        now = os.stat(probe).st_mtime
        os.unlink(probe)
        with (
            self.through_no_link(self.path(TEMPORARY)) as folder,
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                try:
                    age = now - entry.stat(follow_symlinks=False).st_mtime
                except FileNotFoundError:
                    continue
                if age > seconds:
                    yield entry

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """Return (name, is a folder) of a folder's entries that are not hidden; [] if it is gone.

        :raises UnavailableError: when the whole tree is gone.
        """
        with map_errors(f"listing {path}"):
            try:
                with os.scandir(path) as entries:
                    return [
                        (entry.name, entry.is_dir(follow_symlinks=False))
                        for entry in entries
                        if not entry.name.startswith(".")
                    ]
            except FileNotFoundError:
                self.check_there()
                return []

    def walk(self, top: str, prefix: str, is_leaf: Callable[[str, bool], bool]) -> Iterator[str]:
        """Yield paths below ``top``, in the folder ``prefix``, of the entries that are leaves.

        :param is_leaf: takes name and whether it is a folder.
        """
        pending = [prefix]
        while pending:
            folder = pending.pop()
            for name, is_above in self.entries(os.path.join(top, folder)):
                if is_leaf(name, is_above):
                    yield folder + name
                elif is_above:
                    pending.append(f"{folder}{name}/")

    def _temporary_folder(self) -> str:
        folder = self.path(TEMPORARY)
        self.make_folder(folder)
        self._was_seen = True
        return folder


def _enter_folder(parent: int, name: str, _path: str) -> int:
    """Open a folder that is there, in the folder ``parent``, and no link."""
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
