"""Image files of versions while they are downloaded: opened once for all who read them."""

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator

from acstor import exception, native
from acstor.api.places import Place, PlaceKind, Places
from acstor.repository.reading import image_files
from acstor.repository.reading.disk_reader import DiskReader
from acstor.repository.reading.image_files import ImageFile, ImageFormat
from acstor.repository.reading.opened_disk import open_disk
from acstor.repository.repository import Repository
from acstor.repository.versions.version_refs import Version

FILES_MAX = 8
"""Files that are kept open though nobody reads them: a download that broke off goes on soon."""

_Key = tuple[str, str, object]


class VersionFile:
    """Image file of a version, open for as long as somebody uses it."""

    def __init__(self, disk: DiskReader, file: ImageFile, version_id: str) -> None:
        """Keep the file, which nobody uses yet."""
        self._disk = disk
        self._file = file
        self._version_id = version_id

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._file.size_bytes

    @property
    def etag(self) -> str:
        """Name of its bytes, with quotes: the content of a version never changes."""
        name = native.digest(self._version_id.encode() + self._file.layout)
        return f'"{name.hex()}"'

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file."""
        return self._file.read(offset, size)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield bytes of the file; see :func:`.image_files.pieces`."""
        return image_files.pieces(self._file, start, end)

    def close(self) -> None:
        """Close the disk."""
        self._disk.close()


class VersionFiles:
    """Image files of versions. Safe to use from several threads.

    :param open_repository: returns the repository; raises while the origin is away.
    :param downloads_max: most downloads at a time; of one project half of them.
    :param looks_max: most short looks at a time, likewise.
    """

    def __init__(
        self, open_repository: Callable[[], Repository], downloads_max: int, looks_max: int
    ) -> None:
        """Open nothing yet."""
        self._open_repository = open_repository
        self._lock = threading.Lock()
        self._slots: collections.OrderedDict[_Key, _Slot] = collections.OrderedDict()
        self._places = {
            PlaceKind.DOWNLOAD: Places(downloads_max, "downloads_max"),
            PlaceKind.LOOK: Places(looks_max, "looks_max"),
        }

    def about(self, version: Version, image_format: ImageFormat) -> tuple[int, str]:
        """Return length, bytes, and name of a file. While that is found out it is a look.

        :raises OverloadedError: when there are too many of these already.
        :raises AcstorError: as reading the origin does.
        """
        use, place = self._begin(version, image_format, PlaceKind.LOOK)
        with contextlib.closing(Download(use, place)) as found:
            return found.size_bytes, found.etag

    def download(self, version: Version, image_format: ImageFormat) -> "Download":
        """Return a download, which the caller closes.

        :raises OverloadedError: when there are too many already, of the project or of all.
        :raises AcstorError: as reading the origin does.
        """
        return Download(*self._begin(version, image_format, PlaceKind.DOWNLOAD))

    def disk(self, version: Version, kind: PlaceKind) -> "VersionDisk":
        """Return the disk of a version for reading here and there, which the caller closes.

        :param kind: of the place that it takes.
        :raises OverloadedError: when there are too many already, of the project or of all.
        :raises AcstorError: as reading the origin does.
        """
        return VersionDisk(*self._begin(version, ImageFormat.RAW, kind))

    def _begin(
        self, version: Version, image_format: ImageFormat, kind: PlaceKind
    ) -> tuple["_Use", Place | None]:
        places = self._places.get(kind)
        place = None if places is None else places.take(version.record.project)
        try:
            return self._used(version, image_format), place
        except BaseException:
            if place is not None:
                place.close()
            raise

    def _used(self, version: Version, image_format: ImageFormat) -> "_Use":
        key = (version.id, image_format.value, version.record.content)
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            slot.users += 1
        use = _Use(slot, self._let_go)
        try:
            with slot.lock:
                if slot.file is None:
                    slot.file = self._open(version, image_format)
        except BaseException:
            use.close()
            raise
        return use

    def _open(self, version: Version, image_format: ImageFormat) -> VersionFile:
        record = version.record
        disk = open_disk(self._open_repository(), record.content, record.size_bytes)
        try:
            file = image_files.image_file(disk, image_format)
        except BaseException:
            disk.close()
            raise
        return VersionFile(disk, file, version.id)

    def _let_go(self, slot: "_Slot") -> None:
        closed = []
        with self._lock:
            slot.users -= 1
            idle = [key for key, each in self._slots.items() if not each.users]
            empty = [key for key in idle if self._slots[key].file is None]
            for key in [*empty, *idle[: max(0, len(self._slots) - FILES_MAX)]]:
                if key in self._slots:
                    closed.append(self._slots.pop(key))
        for each in closed:
            if each.file is not None:
                each.file.close()


class _Slot:
    """Place of a file; ``lock`` is held while it is opened, users are counted by the others'."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.file: VersionFile | None = None
        self.users = 0


class _Use:
    """Use of a file, until it is closed."""

    def __init__(self, slot: _Slot, let_go: Callable[[_Slot], None]) -> None:
        self._slot: _Slot | None = slot
        self._let_go = let_go

    @property
    def file(self) -> VersionFile:
        found = None if self._slot is None else self._slot.file
        if found is None:
            raise exception.InternalError("a file of a version is used that is not open")
        return found

    def close(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            self._let_go(slot)


class Download:
    """Bytes of a file on their way: an iterator that WSGI servers close, ended or not."""

    def __init__(self, use: _Use, place: Place | None) -> None:
        """Keep use and place; nothing is read yet."""
        self._use = use
        self._place = place
        self._pieces: Iterator[bytes] = iter(())
        self.size_bytes = use.file.size_bytes
        self.etag = use.file.etag

    def begin(self, start: int, end: int) -> None:
        """Choose the bytes to send."""
        self._pieces = self._use.file.pieces(start, end)

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next bytes.

        :raises AcstorError: when they cannot be read: the connection then breaks off, and whoever
            knows the length asks for the rest.
        """
        try:
            return next(self._pieces)
        except BaseException:
            self.close()  # at the end, too: a client may be slow to take the last bytes
            raise

    def close(self) -> None:
        """Let others have the place; may be repeated."""
        self._pieces = iter(())
        self._use.close()
        if self._place is not None:
            self._place.close()


class VersionDisk:
    """Disk of a version, open until it is closed."""

    def __init__(self, use: _Use, place: Place | None) -> None:
        """Keep use and place."""
        self._use = use
        self._place = place
        self.size_bytes = use.file.size_bytes

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the disk, all of which are verified; see :meth:`.DiskReader.read`."""
        return self._use.file.read(offset, size)

    def close(self) -> None:
        """Let others have the place; may be repeated."""
        self._use.close()
        if self._place is not None:
            self._place.close()
