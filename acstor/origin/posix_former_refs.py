"""Refs of a POSIX origin in the former layout: a file each, replaced under a lock.

For repositories that releases which know nothing else may still be using: until ``acstor repository
upgrade`` (``posix_conversion``). Its faults are why there is another layout: who is stopped while
it holds a lock keeps everybody from 1/64 of the refs, and where a lock does not reach the server,
or is lost with the lease of an NFS client, two change the same ref at once.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator

from acstor import exception
from acstor.origin import base, posix_lock, posix_write
from acstor.origin.mounts import find_mount, read_table, read_table_for
from acstor.origin.posix_presence import is_folder
from acstor.origin.posix_tree import PosixTree

FOLDER = "refs"
ASIDE = ".refs-former"
"""Folder of the refs from before their conversion; while there is no ``.refs``, it is under way."""
LOCKS = ".locks"
LOCK_FILE_COUNT = 64
"""Number of lock files; refs whose names fall on the same one wait for each other."""
LOCK_DEADLINE_SECONDS = 30.0
"""Longest wait for a ref's lock."""
STALE_ATTEMPTS_MAX = 5
"""Attempts to open a file that is replaced under an open descriptor (ESTALE over NFS)."""


class ConvertedError(Exception):
    """The refs are in the present layout meanwhile."""


def being_converted(root: str) -> exception.UnavailableError:
    """Return the error for refs that are in neither layout for the moment."""
    return exception.UnavailableError(
        f"the refs of {root} are being converted",
        hint="wait; if 'acstor repository upgrade' was ended in the midst, repeat it",
    )


def hidden_files_missing(path: str) -> exception.UnavailableError:
    """Return the error for a fence at ``path`` without the refs that it says are elsewhere."""
    return exception.UnavailableError(
        f"{path} says that the refs are in .refs beside it, which is not there",
        hint="a copy of an origin's directory needs its hidden files, too (cp -a from/. to/)",
    )


class FormerRefs:
    """The refs of one tree in the former layout.

    All methods may raise ``OSError``, :class:`ConvertedError` and :class:`UnavailableError`: they
    are being converted.

    :param tree: where they are.
    :param present: path that exists once the refs are in the present layout.
    :param folder: where they are in the tree.
    """

    def __init__(self, tree: PosixTree, present: str, folder: str = FOLDER) -> None:
        """Use the refs in ``tree``."""
        self._tree = tree
        self._top = tree.path(folder)
        self._is_aside = folder == ASIDE
        self._present = present
        self._given: set[int] = set()
        self._checked_mounts: tuple[str, str] | None = None

    def aside(self) -> "FormerRefs":
        """Return the refs that were put aside, for who converts them."""
        return FormerRefs(self._tree, self._present, ASIDE)

    def get(self, name: str) -> base.Ref | None:
        """Return a ref's present state."""
        return self._read(name)

    def refresh(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return a ref's present state; the file is not read where it is the same one."""
        return self._read(name, known)

    def swap(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it is in the state ``expected``; return its new token.

        :raises ConflictError: when it is in another state.
        :raises InvalidError: where the mount keeps locks from the server.
        """
        path = os.path.join(self._top, name)
        self._check_locks_reach_server()
        number = hashlib.sha256(name.encode()).digest()[0] % LOCK_FILE_COUNT
        with self._locked(number):
            self._check_present()
            present = self._read(name)
            if (present.token if present else None) != expected:
                raise exception.ConflictError(f"ref {name} was changed by someone else")
            if content is None:
                with self._tree.through_no_link(os.path.dirname(path)) as there:
                    if posix_write.remove_if_there(os.path.join(there, os.path.basename(path))):
                        posix_write.synchronise_folder(there)
                return None
            self._replace(path, content)
            changed = self._read(name)
        if changed is None:
            raise exception.ConflictError(f"ref {name} was removed without its lock")
        return changed.token

    def names(self, prefix: str) -> list[str]:
        """Return the names in the folder ``prefix``."""
        try:
            found = list(self._tree.walk(self._top, prefix, lambda _, is_folder: not is_folder))
        finally:
            self._check_present()
        return found

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep everybody from changing any ref.

        :raises DeadlineError: when somebody holds a lock for too long.
        """
        self._check_locks_reach_server()
        with contextlib.ExitStack() as held:
            for number in range(LOCK_FILE_COUNT):
                held.enter_context(self._locked(number))
            yield

    @contextlib.contextmanager
    def _locked(self, number: int) -> Iterator[None]:
        path = self._lock_path(number)
        with posix_lock.exclusive(path, LOCK_DEADLINE_SECONDS):
            if number not in self._given:  # it is never removed
                self._tree.give_to_owner(path)
                self._given.add(number)
            yield

    def _check_present(self) -> None:
        if is_folder(self._present):
            raise ConvertedError
        if not self._is_aside and is_folder(self._tree.path(ASIDE)):
            if is_folder(self._present):
                raise ConvertedError
            raise being_converted(self._tree.root)

    def _replace(self, path: str, content: bytes) -> None:
        folder = os.path.dirname(path)
        self._tree.make_folder(folder)
        temporary = self._tree.write_temporary([content])
        try:
            with self._tree.through_no_link(folder) as there:
                os.rename(temporary, os.path.join(there, os.path.basename(path)))
                posix_write.synchronise_folder(there)
        except OSError:
            posix_write.remove_if_there(temporary)
            raise

    def _lock_path(self, number: int) -> str:
        folder = self._tree.path(LOCKS)
        self._tree.make_folder(folder)
        return os.path.join(folder, f"{number:02x}")

    def _check_locks_reach_server(self) -> None:
        # All that is mounted, for the numbers of devices and mounts are given again: a file system
        # that is mounted with other options in the place of one that went may have both of it.
        path, table = os.path.realpath(self._tree.root), read_table()
        if (path, table) == self._checked_mounts:
            return
        table = read_table_for(path)
        mount = find_mount(path, table)
        if mount is not None and mount.is_pending:
            raise exception.UnavailableError(
                f"{self._tree.root} is mounted on demand, and that fails",
                hint="see the log of what mounts it: systemd or autofs(8)",
            )
        if mount is not None and mount.is_network and mount.has_local_locks:
            raise exception.InvalidError(
                f"{self._tree.root} is mounted with {mount.local_lock_option}, so the locks of its "
                "refs do not reach the server and hosts would overwrite each other's changes",
                hint="mount it without that option; a repository of this release's format version "
                "needs no locks: 'acstor repository upgrade' when every machine runs this release",
            )
        self._checked_mounts = path, table

    def _read(self, name: str, known: base.Ref | None = None) -> base.Ref | None:
        """Return a ref's state; its token tells files apart even when their content is the same.

        :param known: returned where the file has its inode, time and size.
        """
        path = os.path.join(self._top, name)
        for attempt in range(STALE_ATTEMPTS_MAX):
            try:
                # Opened even to look at only: over NFS that asks the server, as stat may not.
                with open(path, "rb") as file:
                    status = os.fstat(file.fileno())
                    same = f"{status.st_ino}.{status.st_mtime_ns}.{status.st_size}."
                    if known is not None and known.token.startswith(same):
                        return known
                    content = file.read(base.REF_SIZE_MAX + 1)
            except (FileNotFoundError, NotADirectoryError):
                self._check_present()
                self._tree.check_there()
                return None
            except OSError as error:
                if error.errno == errno.ESTALE and attempt + 1 < STALE_ATTEMPTS_MAX:
                    continue
                raise
            identity = f"{status.st_ino}.{status.st_mtime_ns}.{len(content)}."
            return base.Ref(identity + hashlib.sha256(content).hexdigest()[:32], content)
        return None
