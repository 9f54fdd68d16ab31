"""UEFI variables of a stopped server: a new file beside that of libvirt, which takes its place.

They are small, so they are exchanged as a whole: the new file is there, synced, before the disks
are touched, and renamed once they are written. At no time is there half of one. Owner, mode and
extended attributes, of which the label of SELinux is one, are those of the former file. The former
content is in the version of the present disks, which is written back where a restore fails.

Another size is another firmware, whose variables nobody else can read: that is refused. The state
of a virtual TPM is not written: a restore leaves it as it is (RFD 41).
"""

import contextlib
import os
import stat
from collections.abc import Callable

from acstor import exception
from acstor.repository.reading.disk_reader import READ_SIZE_MAX
from acstor.repository.reading.opened_disk import open_disk
from acstor.repository.repository import Repository
from acstor.repository.source.base import SECTOR_SIZE
from acstor.repository.versions.whole_capture import PART_SIZE_MAX
from acstor.repository.volumes.record import DiskState

SUFFIX = ".acstor-restore"
"""Ending of the name of the new file until it is renamed; one that is left is replaced."""
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MAKING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_KEEP_HINT = "restore with --keep-uefi-variables, which leaves the server's own as they are"


class VariablesTarget:
    """File of the UEFI variables of a server, and the one that is to take its place.

    :param path: file of the variables; no link at its end is followed.
    :param content: as a version has it: with zeros up to a whole sector.
    :raises ConflictError: when there is no such file.
    :raises UnsupportedError: when it is no regular file, or of another size.
    :raises UnavailableError: when it cannot be read, or none can be made beside it.
    """

    def __init__(self, path: str, content: bytes) -> None:
        self._path = path
        self._name = os.path.basename(path)
        self._folder = -1
        self._is_made = False
        self._made = -1
        self.written_bytes = 0
        """Bytes of the file that took the place of the former; 0: that is the same."""
        try:
            self._folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
            self._prepare(content)
        except OSError as error:
            self.close()
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise

    def put(self, touch: Callable[[], None]) -> None:
        """Have the new file take the place of the former, durably; nothing where they are the same.

        :param touch: called right before.
        :raises ConflictError: when somebody else has written the file meanwhile, or exchanged the
            new one: the folder may be that of QEMU's user.
        :raises UnavailableError: when it cannot be renamed.
        """
        if not self._is_made:
            return
        try:
            if self._found() != self._former:
                raise exception.ConflictError(
                    f"{self._path} was written while the disks of its server were restored",
                    hint="see that the server is stopped, then restore again",
                )
            temporary = self._name + SUFFIX
            self._require_made(os.stat(temporary, dir_fd=self._folder, follow_symlinks=False))
            touch()
            os.rename(temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._is_made = False
            os.fsync(self._folder)
            self._require_made(os.stat(self._path, follow_symlinks=False))
        except OSError as error:
            raise self._failure(error) from error
        self.written_bytes = self._former[-1]

    def close(self) -> None:
        """Remove what was not put in place; closing again does nothing."""
        made, self._made = self._made, -1
        if made >= 0:
            os.close(made)
        folder, self._folder = self._folder, -1
        if folder < 0:
            return
        if self._is_made:
            with contextlib.suppress(OSError):
                os.unlink(self._name + SUFFIX, dir_fd=folder)
        os.close(folder)

    def _prepare(self, content: bytes) -> None:
        """Make the new file, unless the present one is the same."""
        try:
            former = os.open(self._name, _READING, dir_fd=self._folder)
        except FileNotFoundError as error:
            raise exception.ConflictError(
                f"{self._path} is not there, which has the UEFI variables of a server",
                hint=f"start the server and stop it, which makes them; or {_KEEP_HINT}",
            ) from error
        try:
            self._former = _identity(os.fstat(former))
            content = self._fitting(content, os.fstat(former))
            if _read_all(former) != content:
                self._make(former, content)
        finally:
            os.close(former)

    def _fitting(self, content: bytes, former: os.stat_result) -> bytes:
        """Return the content as long as the present file is.

        :raises UnsupportedError: when it is no regular file, or of another firmware.
        """
        if not stat.S_ISREG(former.st_mode):
            raise exception.UnsupportedError(f"{self._path} is no regular file", hint=_KEEP_HINT)
        padding = -former.st_size % SECTOR_SIZE
        if len(content) != former.st_size + padding or any(content[former.st_size :]):
            raise exception.UnsupportedError(
                f"{self._path} has {former.st_size} bytes, the UEFI variables of the version "
                f"{len(content)}: they are another firmware's",
                hint=_KEEP_HINT,
            )
        return content[: former.st_size]

    def _make(self, former: int, content: bytes) -> None:
        """Write the new file, with all that the former has but the content, and sync it."""
        temporary = self._name + SUFFIX
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=self._folder)  # of a process that was killed
        descriptor = os.open(temporary, _MAKING, 0o600, dir_fd=self._folder)
        self._is_made = True
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _copy_attributes(former, file.fileno())
            os.fsync(file.fileno())
            # Held open: no other file gets its number.
            self._made = os.dup(file.fileno())

    def _require_made(self, found: os.stat_result) -> None:
        """Refuse another file than the new one.

        :raises ConflictError: then.
        """
        if not os.path.samestat(found, os.fstat(self._made)):
            raise exception.ConflictError(
                f"the new file of the UEFI variables in {self._path} was exchanged",
                hint="see what else writes in its folder, then restore again",
            )

    def _found(self) -> tuple[int, ...] | None:
        try:
            return _identity(os.stat(self._name, dir_fd=self._folder, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def _failure(self, error: OSError) -> exception.UnavailableError:
        return exception.UnavailableError(
            f"the UEFI variables in {self._path} cannot be replaced: {error.strerror or error}",
            hint="run acstor-agent as root, and see that there is room beside them; or "
            + _KEEP_HINT,
        )


def read_variables(repository: Repository, manifest: str) -> bytes:
    """Return the UEFI variables of a version, verified; with zeros up to a whole sector.

    :param manifest: of them.
    :raises CorruptError: when they are damaged, or longer than any.
    :raises NotFoundError: when they are not there.
    :raises UnavailableError: when the origin cannot be reached.
    """
    size_bytes = repository.load_manifest(manifest).size_bytes
    if size_bytes > PART_SIZE_MAX:
        raise exception.CorruptError(f"UEFI variables of {size_bytes} bytes are none")
    disk = open_disk(repository, DiskState(manifest), size_bytes)
    try:
        return b"".join(
            disk.read(offset, min(READ_SIZE_MAX, size_bytes - offset))
            for offset in range(0, size_bytes, READ_SIZE_MAX)
        )
    finally:
        disk.close()


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file from another, and from itself once it is written; the size last."""
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(min(size, PART_SIZE_MAX) + 1)


def _copy_attributes(former: int, made: int) -> None:
    """Give a file mode, extended attributes and owner of another.

    The owner is last: who is not that has no right to the rest any more.

    :raises OSError: when one cannot be given: the file would then be another to its guest.
    """
    found = os.fstat(former)
    os.fchmod(made, stat.S_IMODE(found.st_mode))
    for name in os.listxattr(former):
        value = os.getxattr(former, name)
        try:
            if os.getxattr(made, name) == value:
                continue  # such as a label that the folder gives
        except OSError:
            pass
        os.setxattr(made, name, value)
    os.fchown(made, found.st_uid, found.st_gid)
