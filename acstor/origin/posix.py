"""An origin in a directory of a POSIX file system: a local disk, NFS or CephFS.

Layout below the root (``reference/formats/repository``)::

    <key>           an object, mode 0444
    refs/<name>     a ref's content
    .temporary/     files being written
    .locks/         lock files of the refs, 64 of them, each for a share of the names

On NFS the mount must not hide what other hosts did: ``lookupcache=none`` and
``acdirmin=0,acdirmax=0``. See the repository page for why.
"""

import errno
import hashlib
import os
import threading
import urllib.parse
from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.origin import base, keys, posix_lock, posix_write
from acstor.origin.posix_errors import from_os_error, translated

LOCK_FILE_COUNT = 64
"""Number of lock files; refs whose names fall on the same one wait for each other."""
LOCK_DEADLINE_SECONDS = 30.0
"""Longest wait for a ref's lock."""
TEMPORARY_AGE_SECONDS = 24 * 3600.0
"""Age from which a temporary file is taken for a crashed writer's."""
STALE_ATTEMPTS_MAX = 5
"""How often a file replaced under an open descriptor (ESTALE over NFS) is opened again."""

_TEMPORARY = ".temporary"
_LOCKS = ".locks"
_REFS = "refs"


class PosixOrigin(base.Origin):
    """Keeps each object and each ref in a file.

    :param root: an existing directory. It is not created: an unmounted file system would
        otherwise be taken for an empty origin.
    :raises InvalidError: when there is no such directory.
    """

    def __init__(self, root: str) -> None:
        """Open the origin in ``root``."""
        self._root = os.path.abspath(root)
        if not os.path.isdir(self._root):
            raise exception.InvalidError(
                f"origin directory {self._root} does not exist",
                hint="mount or create the directory, or correct [origin] url",
            )
        self._durable_folders = {self._root}
        self._folder_lock = threading.Lock()

    @classmethod
    def from_url(cls, url: urllib.parse.SplitResult) -> "PosixOrigin":
        """Open ``posix:///path`` or ``file:///path``.

        :raises InvalidError: when the URL names a host, or no absolute path, or no directory.
        """
        if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
            raise exception.InvalidError(
                f"{url.geturl()!r} is no URL of a directory",
                hint="write three slashes: posix:///path/to/directory",
            )
        return cls(urllib.parse.unquote(url.path))

    @property
    def root(self) -> str:
        """Absolute path of the origin's directory."""
        return self._root

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        path = self._object_path(key)
        try:
            return self._put(key, path, buffers)
        except exception.NotFoundError as error:
            with self._folder_lock:
                self._durable_folders = {self._root}
            raise exception.UnavailableError(
                f"storing {key}: folders of the origin vanished",
                hint="check that the origin's file system is still mounted",
            ) from error

    def _put(self, key: str, path: str, buffers: Sequence[base.Buffer]) -> bool:
        with translated(f"storing {key}"):
            folder = os.path.dirname(path)
            self._make_folder(folder)
            if os.path.exists(path):
                # Another writer may have named it and not yet synchronised the folder; whoever
                # relies on the object must find it after a power failure.
                posix_write.synchronise_folder(folder)
                return False
            temporary = self._write_temporary(buffers)
            try:
                is_new = posix_write.give_name(temporary, path)
            except OSError:
                posix_write.remove_if_there(temporary)
                raise
            posix_write.synchronise_folder(folder)
            return is_new

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        path = self._object_path(key)
        if offset < 0:
            raise exception.InvalidError(f"offset {offset} is negative")
        with translated(f"reading {key}"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.preadv(descriptor, [buffer], offset)
            finally:
                os.close(descriptor)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        with translated(f"looking for {key}"):
            return os.stat(self._object_path(key)).st_size

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        keys.validate_prefix(prefix)
        for key in self._walk(self._root, prefix):
            if key.split("/", 1)[0] not in keys.RESERVED_FOLDERS:
                yield key

    def delete(self, key: str) -> bool:
        """Delete an object."""
        path = self._object_path(key)
        with translated(f"deleting {key}"):
            is_deleted = posix_write.remove_if_there(path)
            if is_deleted:
                posix_write.synchronise_folder(os.path.dirname(path))
            return is_deleted

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        path = self._ref_path(name)
        with translated(f"reading ref {name}"):
            return _read_ref(path)

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state; the file is not read where it is the same one."""
        path = self._ref_path(name)
        with translated(f"looking at ref {name}"):
            return _read_ref(path, known)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        path = self._ref_path(name)
        base.check_ref_content(name, content)
        with (
            translated(f"changing ref {name}"),
            posix_lock.exclusive(self._lock_path(name), LOCK_DEADLINE_SECONDS),
        ):
            present = _read_ref(path)
            if (present.token if present else None) != expected:
                raise exception.ConflictError(f"ref {name} was changed by someone else")
            folder = os.path.dirname(path)
            if content is None:
                if posix_write.remove_if_there(path):
                    posix_write.synchronise_folder(folder)
                return None
            self._make_folder(folder)
            temporary = self._write_temporary([content])
            try:
                os.rename(temporary, path)
            except OSError:
                posix_write.remove_if_there(temporary)
                raise
            posix_write.synchronise_folder(folder)
            changed = _read_ref(path)
        if changed is None:
            raise exception.ConflictError(f"ref {name} was removed without its lock")
        return changed.token

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        keys.validate_prefix(prefix)
        yield from self._walk(os.path.join(self._root, _REFS), prefix)

    def remove_folder(self, prefix: str) -> bool:
        """Remove an empty folder."""
        path = self._object_path(keys.validate_prefix(prefix).removesuffix("/"))
        with self._folder_lock:
            self._durable_folders.discard(path)
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                return False
            raise from_os_error(error, f"removing folder {prefix}") from error
        return True

    def sweep(self) -> int:
        """Remove temporary files that are older than a day.

        Ages are differences of the file system's own time stamps: a file is written now and
        compared with, so that no host's clock matters.
        """
        with translated("removing leftovers"):
            folder = os.path.join(self._root, _TEMPORARY)
            probe = self._write_temporary([b""])
            now = os.stat(probe).st_mtime
            os.unlink(probe)
            removed = 0
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        age = now - entry.stat(follow_symlinks=False).st_mtime
                    except FileNotFoundError:
                        continue
                    if age > TEMPORARY_AGE_SECONDS:
                        removed += posix_write.remove_if_there(entry.path)
            return removed

    def _object_path(self, key: str) -> str:
        return os.path.join(self._root, keys.validate_key(key))

    def _ref_path(self, name: str) -> str:
        return os.path.join(self._root, _REFS, keys.validate_ref_name(name))

    def _lock_path(self, name: str) -> str:
        folder = os.path.join(self._root, _LOCKS)
        self._make_folder(folder)
        number = hashlib.sha256(name.encode()).digest()[0] % LOCK_FILE_COUNT
        return os.path.join(folder, f"{number:02x}")

    def _write_temporary(self, buffers: Sequence[base.Buffer]) -> str:
        folder = os.path.join(self._root, _TEMPORARY)
        self._make_folder(folder)
        return posix_write.write_temporary(folder, base.as_views(buffers))

    def _make_folder(self, path: str) -> None:
        """Make a folder and its parents, and their names durable, once per process."""
        if path in self._durable_folders:
            return
        parent = os.path.dirname(path)
        self._make_folder(parent)
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        posix_write.synchronise_folder(parent)
        with self._folder_lock:
            self._durable_folders.add(path)

    def _walk(self, top: str, prefix: str) -> Iterator[str]:
        pending = [prefix]
        while pending:
            folder = pending.pop()
            for name, is_folder in _entries(os.path.join(top, folder)):
                if is_folder:
                    pending.append(f"{folder}{name}/")
                else:
                    yield folder + name


def _entries(path: str) -> list[tuple[str, bool]]:
    """Return (name, is a folder) of a folder's entries that are not hidden; [] if it is gone."""
    with translated(f"listing {path}"):
        try:
            with os.scandir(path) as entries:
                return [
                    (entry.name, entry.is_dir(follow_symlinks=False))
                    for entry in entries
                    if not entry.name.startswith(".")
                ]
        except FileNotFoundError:
            return []


def _read_ref(path: str, known: base.Ref | None = None) -> base.Ref | None:
    """Return a ref's state; its token tells files apart even when their content is the same.

    :param known: returned where the file has its inode, time and size.
    """
    for attempt in range(STALE_ATTEMPTS_MAX):
        try:
            # Opened even to look at only: over NFS that asks the server, as stat may not.
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                same = f"{status.st_ino}.{status.st_mtime_ns}.{status.st_size}."
                if known is not None and known.token.startswith(same):
                    return known
                content = file.read(base.REF_SIZE_MAX + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ESTALE and attempt + 1 < STALE_ATTEMPTS_MAX:
                continue
            raise
        identity = f"{status.st_ino}.{status.st_mtime_ns}.{len(content)}."
        return base.Ref(identity + hashlib.sha256(content).hexdigest()[:32], content)
    return None
