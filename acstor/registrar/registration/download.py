"""Getting an image's file from the image service into the spool."""

import contextlib
import dataclasses
import errno
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.conf.types import format_size
from acstor.registrar.image_service.base import ImageService, ServiceImage

PART_SIZE = 1 << 20
"""Bytes asked of the image service at once."""
SPACE_CHECK_SIZE = 64 << 20
"""Bytes between two looks at the free space."""
RETRY_DELAY_MAX = 30.0
_SPOOL_SUFFIX = ".download"
_ZEROS = bytes(PART_SIZE)


@dataclasses.dataclass(frozen=True, slots=True)
class DownloadSettings:
    """Settings of downloads."""

    spool_path: str
    reserve_bytes: int = 0
    """Left free on the file system of the spool."""
    deadline_seconds: float = 14400.0
    """For the whole image, all attempts together."""
    attempts_max: int = 5
    """Attempts one after the other without a byte of progress."""


def empty_spool(path: str) -> int:
    """Remove what downloads of killed processes left; return the number of files.

    Only the registrar that leads downloads, so nobody's work is lost.

    :raises OSError: when the directory cannot be made or read.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    names = [name for name in os.listdir(path) if name.endswith(_SPOOL_SUFFIX)]
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(path, name))
    return len(names)


class Downloader:
    """Downloads one image.

    :param wait: waits so many seconds, or less when the registration is cancelled.
    :param check: raises when the registration is cancelled.
    :param on_bytes: told of each part; returns the seconds to wait (a rate limit).
    """

    def __init__(
        self,
        service: ImageService,
        image: ServiceImage,
        settings: DownloadSettings,
        *,
        wait: Callable[[float], object] = time.sleep,
        check: Callable[[], None] = lambda: None,
        on_bytes: Callable[[int], float] = lambda size: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what to download with."""
        self._service = service
        self._image = image
        self._size = image.size_bytes or 0
        self._settings = settings
        self._wait = wait
        self._check = check
        self._on_bytes = on_bytes
        self._clock = clock
        self._until = clock() + settings.deadline_seconds
        self._position = 0
        self._space_checked_at = 0

    @contextlib.contextmanager
    def downloaded(self) -> Iterator[str]:
        """Download; return the path of the file, which is removed at the end whatever happens.

        :raises ExhaustedError: when there is no room for it.
        :raises NotFoundError: when the image is gone.
        :raises UnavailableError: when the service is away for too long.
        :raises DeadlineError: when the whole takes too long.
        :raises ImageRefusedError: when the service sends more than the image has.
        :raises OSError: when the spool cannot be written.
        """
        os.makedirs(self._settings.spool_path, mode=0o700, exist_ok=True)
        # Of its own: a registration that is being cancelled may still have the last one.
        name = f"{self._image.id}.{secrets.token_hex(4)}{_SPOOL_SUFFIX}"
        path = os.path.join(self._settings.spool_path, name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                self._check_space(descriptor)
                self._fetch(descriptor)
                os.ftruncate(descriptor, self._size)
            finally:
                os.close(descriptor)
            yield path
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _fetch(self, descriptor: int) -> None:
        """Fetch everything, going on where an attempt ended."""
        failures = 0
        while self._position < self._size:
            self._check()
            before = self._position
            try:
                self._attempt(descriptor)
                problem = exception.UnavailableError(
                    f"the data of image {self._image.id} end after {self._position} of "
                    f"{self._size} bytes"
                )
            except exception.DeadlineError:
                if self._clock() >= self._until:
                    raise
                problem = exception.UnavailableError("the image service was too slow")
            except exception.AcstorError as error:
                if not error.is_transient:
                    raise
                problem = exception.UnavailableError(error.message, hint=error.hint)
            if self._position >= self._size:
                return
            failures = 1 if self._position > before else failures + 1
            if failures >= self._settings.attempts_max:
                raise problem
            self._check_deadline()
            self._wait(random.uniform(0.1, min(RETRY_DELAY_MAX, 2.0**failures)))

    def _attempt(self, descriptor: int) -> None:
        with self._service.open_data(self._image.id, self._position) as data:
            if data.offset not in (0, self._position):
                raise exception.UnavailableError("the image service began at the wrong byte")
            if data.offset == 0 and self._position:
                # It cannot begin in the middle; what was written before is written again.
                os.ftruncate(descriptor, 0)
                self._position = self._space_checked_at = 0
            while part := data.read(PART_SIZE):
                self._write(descriptor, part)
                self._check()
                self._check_deadline()
                delay = self._on_bytes(len(part))
                if delay:
                    self._wait(delay)

    def _write(self, descriptor: int, part: bytes) -> None:
        if self._position + len(part) > self._size:
            raise exception.ImageRefusedError(
                f"the image service sent more than the {self._size} bytes of image "
                f"{self._image.id}",
                hint="look at the image in Glance; upload it again",
            )
        if self._position - self._space_checked_at >= SPACE_CHECK_SIZE:
            self._check_space(descriptor)
        if not _ZEROS.startswith(part):  # zeros stay a hole, which nobody has to read
            self._write_all(descriptor, part)
        self._position += len(part)

    def _write_all(self, descriptor: int, part: bytes) -> None:
        view, position = memoryview(part), self._position
        try:
            while view:
                count = os.pwrite(descriptor, view, position)
                view, position = view[count:], position + count
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_space() from error
            raise

    def _check_space(self, descriptor: int) -> None:
        self._space_checked_at = self._position
        status = os.fstatvfs(descriptor)
        free = status.f_bavail * status.f_frsize - self._settings.reserve_bytes
        if free < self._size - self._position:
            raise self._no_space()

    def _check_deadline(self) -> None:
        if self._clock() >= self._until:
            raise exception.DeadlineError(
                f"image {self._image.id} was not downloaded within "
                f"{self._settings.deadline_seconds:g} s",
                hint="raise [glance] download_deadline, or give it more bandwidth",
            )

    def _no_space(self) -> exception.ExhaustedError:
        return exception.ExhaustedError(
            f"no room for image {self._image.id} ({format_size(self._size)}) in "
            f"{self._settings.spool_path}",
            hint="make room there, or set [registrar] spool_path to a larger file system",
        )
