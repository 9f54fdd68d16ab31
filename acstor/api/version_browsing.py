"""Files of versions: disks that are looked into, each by a process of its own."""

import contextlib
from collections.abc import Iterator

from acstor.api.places import PlaceKind
from acstor.api.version_files import VersionDisk, VersionFiles
from acstor.browsing.disk_files import DiskFiles
from acstor.browsing.session import Session
from acstor.repository.versions.version_refs import Version

LOOK_SECONDS = 60.0
"""Seconds that a short answer may take: partitions, a page of a directory, one file."""
COMPARE_SECONDS = 120.0
"""Seconds that a page of differences may take."""
STREAM_SECONDS = 3600.0
"""Seconds that content may take on its way."""


class OpenedFiles:
    """Files of one version, until they are closed.

    :param seconds: that all answers may take together.
    :param kind: of the place that they take.
    """

    def __init__(
        self, files: VersionFiles, version: Version, seconds: float, kind: PlaceKind
    ) -> None:
        """Open the disk, and start the process.

        :raises OverloadedError: when too many disks are looked into, or sent, already.
        :raises AcstorError: as opening the disk does.
        """
        self._disk: VersionDisk = files.disk(version, kind)
        try:
            self._session = Session(self._disk, seconds)
        except BaseException:
            self._disk.close()
            raise
        self.files = DiskFiles(self._session)

    def close(self) -> None:
        """End the process, and let others have the place. May be repeated."""
        try:
            self._session.close()
        finally:
            self._disk.close()


@contextlib.contextmanager
def looked_into(files: VersionFiles, version: Version) -> Iterator[DiskFiles]:
    """Return the files of a version for the length of a context, for a short answer."""
    found = OpenedFiles(files, version, LOOK_SECONDS, PlaceKind.LOOK)
    with contextlib.closing(found):
        yield found.files


@contextlib.contextmanager
def compared(
    files: VersionFiles, before: Version, after: Version
) -> Iterator[tuple[DiskFiles, DiskFiles]]:
    """Return the files of two versions for the length of a context, in one place."""
    with contextlib.ExitStack() as stack:
        old = OpenedFiles(files, before, COMPARE_SECONDS, PlaceKind.DOWNLOAD)
        stack.callback(old.close)
        new = OpenedFiles(files, after, COMPARE_SECONDS, PlaceKind.BESIDE)
        stack.callback(new.close)
        yield old.files, new.files


def sent(files: VersionFiles, version: Version) -> OpenedFiles:
    """Return the files of a version for content that is sent as it is read."""
    return OpenedFiles(files, version, STREAM_SECONDS, PlaceKind.DOWNLOAD)


class FileStream:
    """Bytes on their way: an iterator that WSGI servers close, ended or not.

    The first part is read at once, so that what is not there, or cannot be read, is an answer of
    its own. A later error breaks the connection off.
    """

    def __init__(self, opened_files: OpenedFiles, content: Iterator[bytes]) -> None:
        """Keep what to close; closes it where reading the first part fails."""
        self._opened = opened_files
        self._content = content
        try:
            self._first = next(content, None)
        except BaseException:
            opened_files.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next bytes."""
        first, self._first = self._first, None
        try:
            return next(self._content) if first is None else first
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process; may be repeated."""
        self._first = None
        self._content = iter(())
        self._opened.close()
