"""Partitions and files of a disk, as a session tells of them."""

import dataclasses
import enum
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from acstor import exception, untrusted_json
from acstor.browsing import frames

ARCHIVE_FILES_MAX = 1 << 20
"""Files of an archive."""
ARCHIVE_DEPTH_MAX = 128
"""Directories within one another in an archive."""
PARTITIONS_MAX = 2048
"""Partitions that are believed; the process looks at 1,024 of one table."""
_ARCHIVE_FILE_MAX = 16 << 10
"""Bytes of an archive beside content, of each file: heads, long names and targets, padding."""
_PARTITION_MAX = (1 << 32) - 1
_PLACE_MAX = (1 << 64) - 1
"""A table of partitions may lie, and is shown as it is."""
_ID_MAX = (1 << 32) - 1
_TIME_LENGTH_MAX = 40
_PATH_LENGTH_MAX = 4 * (4096 + 1 + 255)
"""Characters of a name below the longest path that is followed, each byte as ``\\xNN``."""

_T = TypeVar("_T")


class FileKind(enum.StrEnum):
    """Kind of a file."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    """Symbolic link: shown, not followed at the end of a path."""
    SPECIAL = "special"
    """Device, pipe or socket: without content."""


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionFound:
    """Partition of a disk."""

    number: int
    """As Linux counts; 0: the whole disk, which has no table."""
    start: int
    """First byte."""
    size_bytes: int
    name: str
    """In the table; empty: none."""
    file_system: str
    """As ``blkid`` calls it; ``unknown``: nothing that is known."""
    label: str
    is_readable: bool
    """True where its files are shown."""
    reason: str | None
    """Reason where they are not."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileFound:
    """File, without its content."""

    name: str
    """Name, or path, with bytes that are no text as ``\\xNN``; so is the target."""
    kind: FileKind
    size_bytes: int
    mode: int
    """Permission bits, with set-user-id, set-group-id and sticky bit."""
    uid: int
    gid: int
    modified_ns: int
    """Last change of the content, nanoseconds since 1970."""
    target: str | None
    """Of a link."""


class Answers(Protocol):
    """Whoever answers questions about a disk; see :class:`~.session.Session`."""

    def ask(self, question: Mapping[str, object]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the parts of an answer."""


class DiskFiles:
    r"""Files of a disk. Errors are those of :meth:`.Session.ask`.

    Paths are absolute, with ``/`` between their parts, and bytes that are no text as ``\\xNN``.
    """

    def __init__(self, session: Answers) -> None:
        """Keep the session."""
        self._session = session

    def partitions(self) -> list[PartitionFound]:
        """Return the partitions, in the order of their numbers."""
        return self._few({"op": "partitions"}, _partition, PARTITIONS_MAX)

    def entry(self, partition: int, path: str) -> FileFound:
        """Return one file; of a link the link."""
        found = self._few({"op": "entry", "partition": partition, "path": path}, _file, 1)
        if len(found) != 1:
            raise _nonsense(f"{len(found)} files for one")
        return found[0]

    def listing(self, partition: int, path: str) -> Iterator[FileFound]:
        """Yield what is in a directory, by names ascending."""
        return self._items({"op": "list", "partition": partition, "path": path}, _file)

    def walk(self, partition: int, path: str) -> Iterator[FileFound]:
        """Yield what is below a directory, by paths: what it has before what those have."""
        return self._items({"op": "walk", "partition": partition, "path": path}, _file)

    def content(self, partition: int, path: str, offset: int, size: int) -> Iterator[bytes]:
        """Yield bytes of a regular file, all that are asked for: their number was sent before.

        :raises UnsupportedError: when the file ends before.
        :raises InternalError: when more come; they would be taken for the next answer.
        """
        place = {"partition": partition, "path": path, "offset": offset, "length": size}
        done = 0
        for content in self._bytes({"op": "read", **place}, size):
            done += len(content)
            yield content
        if done < size:
            raise exception.UnsupportedError(
                f"the file system is damaged: {path} has {done} of {size} bytes"
            )

    def archive(self, partition: int, path: str, bytes_max: int) -> Iterator[bytes]:
        """Yield a tar archive of a directory.

        :param bytes_max: of content; where there is more this is an error, in the middle of it.
        """
        bounds = {
            "entries_max": ARCHIVE_FILES_MAX,
            "bytes_max": bytes_max,
            "depth_max": ARCHIVE_DEPTH_MAX,
        }
        size_max = bytes_max + ARCHIVE_FILES_MAX * _ARCHIVE_FILE_MAX
        question = {"op": "archive", "partition": partition, "path": path, **bounds}
        return self._bytes(question, size_max)

    def _few(
        self, question: Mapping[str, object], parse: Callable[[Any], _T], most: int
    ) -> list[_T]:
        found = list(itertools.islice(self._items(question, parse), most + 1))
        if len(found) > most:
            raise _nonsense(f"more than {most} of what there are few of")
        return found

    def _items(self, question: Mapping[str, object], parse: Callable[[Any], _T]) -> Iterator[_T]:
        for kind, content in self._session.ask(question):
            if kind != frames.ITEM:
                raise _nonsense("bytes among files")
            try:
                said = untrusted_json.load(content, "a list of files")
                if not isinstance(said, list):
                    raise _nonsense("no list")
                found = [parse(one) for one in said]
            except (ValueError, KeyError, TypeError) as error:
                raise _nonsense(str(error)) from error
            yield from found

    def _bytes(self, question: Mapping[str, object], most: int) -> Iterator[bytes]:
        for kind, content in self._session.ask(question):
            if kind != frames.BYTES:
                raise _nonsense("files among bytes")
            most -= len(content)
            if most < 0:
                raise _nonsense("more than was asked for")
            yield content


def _nonsense(reason: str) -> exception.InternalError:
    return exception.InternalError(
        f"the process that reads files says what cannot be understood: {reason}"
    )


def _text(said: Mapping[str, Any], name: str) -> str:
    text = said[name]
    if not isinstance(text, str) or len(text) > _PATH_LENGTH_MAX:
        raise ValueError(f"{name} is no text")
    return text


def _text_or_none(said: Mapping[str, Any], name: str) -> str | None:
    return None if said[name] is None else _text(said, name)


def _partition(said: Mapping[str, Any]) -> PartitionFound:
    return PartitionFound(
        number=untrusted_json.whole(said["number"], "number", highest=_PARTITION_MAX),
        start=untrusted_json.whole(said["start"], "start", highest=_PLACE_MAX),
        size_bytes=untrusted_json.whole(said["size_bytes"], "size_bytes", highest=_PLACE_MAX),
        name=_text(said, "name"),
        file_system=_text(said, "file_system"),
        label=_text(said, "label"),
        is_readable=said["is_readable"] is True,
        reason=_text_or_none(said, "reason"),
    )


def _file(said: Mapping[str, Any]) -> FileFound:
    modified = _text(said, "modified_ns")
    if len(modified) > _TIME_LENGTH_MAX:
        raise ValueError("modified_ns is no time")
    return FileFound(
        name=_text(said, "name"),
        kind=FileKind(said["kind"]),
        size_bytes=untrusted_json.whole(said["size_bytes"], "size_bytes", highest=(1 << 63) - 1),
        mode=untrusted_json.whole(said["mode"], "mode", highest=0o7777),
        uid=untrusted_json.whole(said["uid"], "uid", highest=_ID_MAX),
        gid=untrusted_json.whole(said["gid"], "gid", highest=_ID_MAX),
        modified_ns=int(modified),
        target=_text_or_none(said, "target"),
    )
