"""Registering the file of an image, once it is on this machine."""

import abc
import contextlib
import dataclasses
from collections.abc import Callable

from acstor import exception
from acstor.origin.rados.connection import Connection
from acstor.repository import disk_formats
from acstor.repository.checksum import Checksum
from acstor.repository.images import inspection, registration
from acstor.repository.images.record_writer import RecordWriter, UnsignedRecords
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository
from acstor.repository.source import base
from acstor.repository.source.rbd import opening
from acstor.repository.source.rbd.base import BlockSnapshot
from acstor.repository.source.rbd.location import RbdLocation

OpenSnapshot = Callable[[Connection, RbdLocation], BlockSnapshot]


@dataclasses.dataclass(frozen=True, slots=True)
class ImageFile:
    """A file, and what Glance says of it."""

    image_id: str
    name: str
    path: str
    disk_format: str
    checksum: str | None = None
    """Declared, ``algorithm:hexadecimal``."""
    dedup_scope: str | None = None
    """Scope of the names of its chunks; None: they are plain digests."""
    rbd: RbdLocation | None = None
    """Place in RBD, instead of a file."""
    size_bytes: int | None = None
    """Declared size of what is in RBD."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileSettings:
    """Settings of the registration of files."""

    registration: registration.Settings
    tool_timeout: float = 60.0
    disk_size_max: int | None = None
    """Most bytes of a disk; None: any number."""
    rbd: Connection | None = None
    """Client of the cluster that Glance stores images in."""


class CancelledError(exception.AcstorError):
    """The registration is not wanted any more."""

    kind = exception.ErrorKind.FENCED
    default_hint = "nothing needs to be done"


class LeftError(exception.ImageRefusedError):
    """Inspection refused the image: it is left to Nova."""


class NotInRbdError(exception.UnavailableError):
    """The image cannot be opened in RBD; nothing of it was registered."""


class FileRegistrar(abc.ABC):
    """Registers files, one image at a time in each thread."""

    @abc.abstractmethod
    def register(
        self,
        repository: Repository,
        file: ImageFile,
        settings: FileSettings,
        check: Callable[[], None],
        advance: Callable[[int], None],
    ) -> registration.Report:
        """Inspect the file and register the disk in it.

        :param check: called now and then, and before the image is published; raises
            :class:`CancelledError` to end the registration.
        :param advance: told how many more bytes of the disk were stored; may wait.
        :raises NotInRbdError: when it is in RBD and cannot be opened there.
        :raises LeftError: when inspection refuses the image.
        :raises DiskTooLargeError: when the disk is too large.
        :raises ImageRefusedError: when it is not what was declared.
        :raises AcstorError: as
            :meth:`acstor.repository.images.registration.Registrar.register` does.
        """


class InProcess(FileRegistrar):
    """Registers in this process; what the file makes it take is taken from all others.

    :param writer: writes the records, by default without a signature.
    :param open_snapshot: opens images in RBD.
    """

    def __init__(
        self,
        writer: RecordWriter | None = None,
        open_snapshot: OpenSnapshot = opening.open_snapshot,
    ) -> None:
        self._writer = writer or UnsignedRecords()
        self._open_snapshot = open_snapshot

    def register(
        self,
        repository: Repository,
        file: ImageFile,
        settings: FileSettings,
        check: Callable[[], None],
        advance: Callable[[int], None],
    ) -> registration.Report:
        """Register the file."""
        try:
            source = self._open(repository, file, settings)
        except exception.ContentMismatchError:
            raise
        except exception.ImageRefusedError as error:
            raise LeftError(error.message) from error
        with contextlib.closing(source):
            request = registration.Request(
                image_id=file.image_id,
                name=file.name,
                source=source,
                source_format=file.disk_format,
                checksum=Checksum.parse(file.checksum) if file.checksum else None,
                dedup_scope=file.dedup_scope,
            )
            registrar = registration.Registrar(
                repository, settings.registration, _Throttle(advance), check, self._writer
            )
            return registrar.register(request)

    def _open(
        self, repository: Repository, file: ImageFile, settings: FileSettings
    ) -> base.ImageSource:
        limits = inspection.SizeLimits(
            settings.disk_size_max, disk_formats.disk_size_max(repository)
        )
        if file.rbd is None:
            return inspection.open_source(
                file.path, file.disk_format, settings.tool_timeout, limits
            )
        return inspection.open_rbd_source(
            self._opened_in_rbd(file, settings), settings.tool_timeout, limits
        )

    def _opened_in_rbd(self, file: ImageFile, settings: FileSettings) -> BlockSnapshot:
        if file.rbd is None or settings.rbd is None:
            raise exception.InternalError("an image in RBD was ordered without a client")
        try:
            snapshot = self._open_snapshot(settings.rbd, file.rbd)
        except exception.AcstorError as error:
            raise NotInRbdError(error.message, hint=error.hint) from error
        try:
            opening.check_size(snapshot, file.size_bytes)
        except exception.InvalidError as error:
            snapshot.close()
            raise NotInRbdError(error.message, hint=error.hint) from error
        return snapshot


class _Throttle(Progress):
    """Progress that is told to a rate limit."""

    def __init__(self, throttle: Callable[[int], None]) -> None:
        self._throttle = throttle

    def advance(self, count: int) -> None:
        self._throttle(count)
