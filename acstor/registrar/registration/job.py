"""One registration: from an image of Glance to a published image, or to the reason why not."""

import contextlib
import dataclasses
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.rate_limit import RateLimit
from acstor.registrar.image_service.base import VISIBILITY_PUBLIC, ImageService, ServiceImage
from acstor.registrar.planning import verdict_key
from acstor.registrar.registration.download import Downloader, DownloadSettings
from acstor.registrar.registration.file_registration import (
    CancelledError,
    FileRegistrar,
    FileSettings,
    ImageFile,
    LeftError,
    NotInRbdError,
)
from acstor.registrar.registration.file_store import find_file
from acstor.repository.dedup_scope import DedupScope
from acstor.repository.images import registration
from acstor.repository.origin_reserve import OriginReserve
from acstor.repository.repository import Repository
from acstor.repository.source.rbd.location import RbdLocation, find_location

LOG = logging.getLogger(__name__)


class OutcomeKind(enum.StrEnum):
    """Kind of the result of a registration."""

    REGISTERED = "registered"
    LEFT = "left"
    """Nova may use it, ACStor does not."""
    FAILED = "failed"
    """Trying again may help."""
    MISMATCHED = "mismatched"
    """The content is not what Glance declares."""
    CORRUPT = "corrupt"
    """The checksum is another one: on the way, or in the store."""
    CANCELLED = "cancelled"
    """Glance, or another registrar, was faster; nothing is known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a registration."""

    image: ServiceImage
    kind: OutcomeKind
    reason: str = ""
    report: registration.Report | None = None
    downloaded_bytes: int = 0
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class JobSettings:
    """Settings of registrations."""

    download: DownloadSettings
    file: FileSettings
    file_registrar: FileRegistrar
    datadir: str = ""
    """Glance's file store; empty: it is not mounted."""
    download_rate: RateLimit = dataclasses.field(default_factory=lambda: RateLimit(0))
    scan_rate: RateLimit = dataclasses.field(default_factory=lambda: RateLimit(0))
    dedup_scope: DedupScope = DedupScope.CLOUD
    rbd_pools: tuple[str, ...] = ()
    """Pools that Glance stores images in; none: they are not read from RBD."""

    def scope_of(self, image: ServiceImage) -> str | None:
        """Return the scope of the names of an image's chunks.

        Images that are not public have that of their owner, also those that he shares.
        """
        if image.visibility == VISIBILITY_PUBLIC:
            return None
        return self.dedup_scope.of_project(image.owner, image.id)

    def location_of(self, image: ServiceImage) -> RbdLocation | None:
        """Return where an image is to be read from RBD, None where it is not to be."""
        if image.disk_format != "raw":
            return None  # what another format says is found by tools that read files
        return find_location(image.id, image.locations, self.rbd_pools)


class ImageJob:
    """Registers one image; :meth:`run` is called once, from any thread.

    :param is_wanted: whether this process still leads.
    """

    def __init__(
        self,
        service: ImageService,
        repository: Repository,
        image: ServiceImage,
        settings: JobSettings,
        *,
        is_wanted: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what to register."""
        self.image = image
        self.key = verdict_key(image)
        self._service = service
        self._repository = repository
        self._settings = settings
        self._is_wanted = is_wanted
        self._clock = clock
        self._cancelled = threading.Event()
        self._reason = ""
        self._downloaded = 0
        self._path = ""

    def cancel(self, reason: str) -> None:
        """Have it end soon."""
        if not self._cancelled.is_set():
            self._reason = reason
            self._cancelled.set()

    def run(self) -> Outcome:
        """Register; raises nothing."""
        started = self._clock()
        report: registration.Report | None = None
        try:
            report = self._register()
            kind, reason = OutcomeKind.REGISTERED, ""
        except Exception as error:
            kind, reason = self._judge(error)
        return Outcome(self.image, kind, reason, report, self._downloaded, self._clock() - started)

    def _register(self) -> registration.Report:
        image = self.image
        # Before it is downloaded.
        dedup_scope = self._settings.scope_of(image)
        self._repository.check_scope_allowed(dedup_scope)
        reserve_percent = self._settings.file.registration.reserve_percent
        OriginReserve(self._repository.origin, reserve_percent).check()
        file = ImageFile(
            image_id=image.id,
            name=image.name or image.id,
            path=find_file(self._settings.datadir, image) or "",
            disk_format=image.disk_format or "",
            checksum=str(image.checksum) if image.checksum else None,
            dedup_scope=dedup_scope,
        )
        if file.path:
            return self._register_file(file)
        location = self._settings.location_of(image)
        if location is not None:
            try:
                return self._register_file(
                    dataclasses.replace(file, rbd=location, size_bytes=image.size_bytes)
                )
            except NotInRbdError as error:
                LOG.warning(
                    "image %s is downloaded instead of read from RBD: %s",
                    image.id, exception.one_line(error, with_hint=True),
                )  # fmt: skip
        with self._download() as path:
            return self._register_file(dataclasses.replace(file, path=path))

    def _register_file(self, file: ImageFile) -> registration.Report:
        self._path = file.path
        self._check()
        return self._settings.file_registrar.register(
            self._repository, file, self._settings.file, self._check, self._throttle
        )

    @contextlib.contextmanager
    def _download(self) -> Iterator[str]:
        downloader = Downloader(
            self._service,
            self.image,
            self._settings.download,
            wait=self._cancelled.wait,
            check=self._check,
            on_bytes=self._note_download,
            clock=self._clock,
        )
        with downloader.downloaded() as path:
            yield path

    def _note_download(self, size_bytes: int) -> float:
        self._downloaded += size_bytes
        return self._settings.download_rate.take(size_bytes)

    def _throttle(self, size_bytes: int) -> None:
        delay = self._settings.scan_rate.take(size_bytes)
        if delay:
            self._cancelled.wait(delay)

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError(self._reason)
        if not self._is_wanted():
            raise CancelledError("another registrar leads")

    def _judge(self, error: Exception) -> tuple[OutcomeKind, str]:
        match error:
            case CancelledError():
                return OutcomeKind.CANCELLED, error.message
            case exception.NotFoundError() if self._is_gone():
                return OutcomeKind.CANCELLED, error.message
            case LeftError() | exception.DiskTooLargeError():
                return OutcomeKind.LEFT, self._readable(error, "")
            case exception.ContentMismatchError():
                hint = "correct disk_format in Glance, or upload the image again"
                return OutcomeKind.MISMATCHED, self._readable(error, hint)
            case exception.ChecksumMismatchError():
                hint = "upload the image again, if that does not pass"
                return OutcomeKind.CORRUPT, self._readable(error, hint)
            case exception.AcstorError():
                return OutcomeKind.FAILED, self._readable(error)
            case OSError():
                where = f"{error.filename}: " if error.filename else ""
                return OutcomeKind.FAILED, f"{where}{error.strerror or error}"
            case _:
                LOG.error("registering image %s failed", self.image.id, exc_info=error)
                return OutcomeKind.FAILED, f"{type(error).__name__}: {error}"

    def _is_gone(self) -> bool:
        try:
            return self._service.find_image(self.image.id) is None
        except exception.AcstorError:
            return False

    def _readable(self, error: exception.AcstorError, hint: str | None = None) -> str:
        """Return message and hint, without the path that only this process has."""
        hint = error.hint if hint is None else hint
        text = f"{error.message}; {hint}" if hint else error.message
        return text.replace(self._path, "the file") if self._path else text
