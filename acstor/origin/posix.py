"""An origin in a directory of a POSIX file system: a local disk, NFS or CephFS.

Layout below the root (``reference/formats/repository``)::

    <key>           an object, mode 0444
    .refs/<name>@/  the versions of a ref
    .temporary/     files being written
    .reserve/       space for what frees space

On NFS the mount must not hide what other hosts did: ``lookupcache=none`` and
``acdirmin=0,acdirmax=0``. See the repository page for why.
"""

import contextlib
import errno
import logging
import os
import urllib.parse
from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.origin import base, keys, posix_conversion, posix_refs, posix_reserve, posix_write
from acstor.origin.mounts import find_mount
from acstor.origin.posix_errors import from_os_error, map_errors
from acstor.origin.posix_former_refs import (
    ASIDE,
    ConvertedError,
    FormerRefs,
    being_converted,
    hidden_files_missing,
)
from acstor.origin.posix_former_refs import FOLDER as FORMER_FOLDER
from acstor.origin.posix_presence import is_folder, is_there
from acstor.origin.posix_refs import PosixRefs
from acstor.origin.posix_tree import TEMPORARY_AGE_SECONDS, PosixTree

LOG = logging.getLogger(__name__)


class PosixOrigin(base.Origin):
    """Keeps each object, and each version of a ref, in a file.

    :param root: an existing directory. It is not created: an unmounted file system would
        otherwise be taken for an empty origin.
    :raises InvalidError: when there is no such directory.
    """

    def __init__(self, root: str) -> None:
        """Open the origin in ``root``."""
        self._root = os.path.abspath(root)
        with map_errors(f"looking for the origin's directory {self._root}"):
            is_directory = is_folder(self._root)
        if not is_directory:
            raise exception.InvalidError(
                f"origin directory {self._root} does not exist",
                hint="mount or create the directory, or correct [origin] url",
            )
        self._tree = PosixTree(self._root)
        self._tree.check_there()
        present = self._tree.path(posix_refs.FOLDER)
        self._present_refs = PosixRefs(self._tree, present)
        self._former_refs = FormerRefs(self._tree, present)
        self._is_converted = False
        self._was_former = False
        self._warn_of_mount()

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
        with self._existing_folders(f"storing {key}"):
            folder = os.path.dirname(path)
            self._tree.make_folder(folder)
            if is_there(path):
                # Another writer may have named it and not yet synchronised the folder; whoever
                # relies on the object must find it after a power failure.
                posix_write.synchronise_folder(folder)
                return False
            temporary = self._tree.write_temporary(buffers)
            try:
                with self._tree.through_no_link(folder) as there:
                    name = os.path.join(there, os.path.basename(path))
                    is_new = posix_write.give_name(temporary, name)
                    posix_write.synchronise_folder(there)
            except OSError:
                posix_write.remove_if_there(temporary)
                raise
            return is_new

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        path = self._object_path(key)
        if offset < 0:
            raise exception.InvalidError(f"offset {offset} is negative")
        with self._absence_checked(f"reading {key}"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.preadv(descriptor, [buffer], offset)
            finally:
                os.close(descriptor)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        with self._absence_checked(f"looking for {key}"):
            return os.stat(self._object_path(key)).st_size

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        keys.validate_prefix(prefix)
        self._tree.check_there()
        for key in self._tree.walk(self._root, prefix, lambda _, is_folder: not is_folder):
            if key.split("/", 1)[0] not in keys.RESERVED_FOLDERS:
                yield key

    def delete(self, key: str) -> bool:
        """Delete an object."""
        path = self._object_path(key)
        with map_errors(f"deleting {key}"):
            is_deleted = False
            with (
                contextlib.suppress(FileNotFoundError),
                self._tree.through_no_link(os.path.dirname(path)) as there,
            ):
                is_deleted = posix_write.remove_if_there(
                    os.path.join(there, os.path.basename(path))
                )
                if is_deleted:
                    posix_write.synchronise_folder(there)
            if not is_deleted:
                self._tree.check_there()
            return is_deleted

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        keys.validate_ref_name(name)
        with map_errors(f"reading ref {name}"):
            try:
                return self._refs().get(name)
            except ConvertedError:
                return self._present_refs.get(name)

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state; the content is not read where it is the same one."""
        keys.validate_ref_name(name)
        with map_errors(f"looking at ref {name}"):
            try:
                return self._refs().refresh(name, known)
            except ConvertedError:
                return self._present_refs.get(name)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        keys.validate_ref_name(name)
        base.check_ref_content(name, content)
        with self._existing_folders(f"changing ref {name}"):
            if content is not None:
                return self._swap_ref(name, expected, content)
            with self.freeing():
                return self._swap_ref(name, expected, content)

    def _swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        try:
            return self._refs().swap(name, expected, content)
        except ConvertedError:
            # The caller's token is of the former layout.
            raise exception.ConflictError(f"ref {name} was converted") from None

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        keys.validate_prefix(prefix)
        try:
            yield from self._refs().names(prefix)
        except ConvertedError:
            yield from self._present_refs.names(prefix)

    def remove_folder(self, prefix: str) -> bool:
        """Remove an empty folder."""
        path = self._object_path(keys.validate_prefix(prefix).removesuffix("/"))
        self._tree.forget_folder(path)
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                return False
            raise from_os_error(error, f"removing folder {prefix}") from error
        return True

    def space(self) -> base.Space:
        """Return the room of the file system, without what it keeps for root."""
        with map_errors(f"asking for the room of {self._root}"):
            found = os.statvfs(self._root)
        used = found.f_blocks - found.f_bfree
        unit = found.f_frsize
        return base.Space(found.f_bavail * unit, (used + found.f_bavail) * unit)

    def freeing(self, *, is_beginning: bool = False) -> contextlib.AbstractContextManager[None]:
        """Let refs be written from the reserve within."""
        return posix_reserve.freeing(is_beginning=is_beginning)

    def sweep(self) -> int:
        """Remove temporary files that are older than a day; make what the reserve lacks."""
        removed = 0
        with map_errors("removing leftovers"), self.freeing():
            for entry in self._tree.temporaries_older_than(TEMPORARY_AGE_SECONDS):
                if entry.is_dir(follow_symlinks=False):
                    removed += self._tree.remove_temporary_folder(entry.path)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    self._present_refs.finish_removal(entry.path)
                removed += posix_write.remove_if_there(entry.path)
        self._tree.reserve.fill(self._tree.make_folder)
        return removed

    def convert_refs(self) -> bool:
        """Have the refs in the layout that needs no locks."""
        with map_errors("converting the refs"), self.freeing():
            return posix_conversion.convert(self._tree, self._former_refs)

    @property
    def needs_locks(self) -> bool:
        """True if the refs are in the former layout, which needs locks."""
        return isinstance(self._refs(), FormerRefs)

    def _refs(self) -> PosixRefs | FormerRefs:
        """Return the refs of the layout in use.

        :raises UnavailableError: when it cannot be told which that is.
        """
        with map_errors(f"looking for the refs of {self._root}"):
            if self._has_present_layout():
                return self._present_refs
            missing = self._missing_refs()
            if missing is None:
                return self._former_refs if self._was_former else self._present_refs
            # What was there instead may have been so for a conversion that has ended since.
            if self._has_present_layout():
                return self._present_refs
            self._tree.check_there()
            raise missing

    def _has_present_layout(self) -> bool:
        if not self._is_converted:
            self._is_converted = is_folder(self._tree.path(posix_refs.FOLDER))
        return self._is_converted

    def _missing_refs(self) -> exception.UnavailableError | None:
        """Return what is wrong where there is no folder of the present layout.

        None: nothing; the refs are in the former layout, or there were none ever.
        """
        path = self._tree.path(FORMER_FOLDER)
        # In this order: who converts moves the one to the other.
        is_former = is_folder(path)
        if is_folder(self._tree.path(ASIDE)):
            return being_converted(self._root)
        if is_former:
            self._was_former = True
            return None
        if self._was_former:
            return exception.UnavailableError(
                f"the refs that were in {path} are not there any more",
                hint="look for that folder in the origin's directory; is its file system mounted?",
            )
        if is_there(path):
            return hidden_files_missing(path)
        return None

    def _object_path(self, key: str) -> str:
        return self._tree.path(keys.validate_key(key))

    @contextlib.contextmanager
    def _absence_checked(self, what: str) -> Iterator[None]:
        """As ``map_errors``; what is absent is so only where the origin is there."""
        with map_errors(what):
            try:
                yield
            except FileNotFoundError:
                self._tree.check_there()
                raise

    @contextlib.contextmanager
    def _existing_folders(self, what: str) -> Iterator[None]:
        """As ``map_errors``; that a folder is not there is no answer to a writer."""
        try:
            with map_errors(what):
                yield
        except exception.NotFoundError as error:
            self._tree.forget_folders()
            raise exception.UnavailableError(
                f"{what}: folders of the origin vanished",
                hint="check that the origin's file system is still mounted",
            ) from error

    def _warn_of_mount(self) -> None:
        mount = find_mount(self._root)
        try:
            needs_locks = self.needs_locks
        except exception.AcstorError:
            needs_locks = False  # whoever uses the refs is told
        for problem in mount.problems(needs_locks=needs_locks) if mount else []:
            LOG.warning("%s is mounted %s", self._root, problem)
