"""Reading ``qemu-img map``: an answer of any length in bounded memory.

An image may alternate between data and zeros at each cluster; its map is then hundreds of
megabytes of JSON. It is parsed as it comes, and only the borders between unlike ranges are kept.
"""

import array
from collections.abc import Iterator

from acstor import exception, untrusted_json
from acstor.repository.source import base

EXTENTS_MAX = 4 << 20
"""Most ranges of an image: as many as a disk of 256 GiB has clusters of 64 KiB."""
ITEM_SIZE_MAX = 64 << 10
"""Longest description of one range, bytes; one has about 150."""


class ExtentMap:
    """The data and zero ranges of a disk, 8 bytes for each; neighbours are unlike."""

    def __init__(self) -> None:
        """Begin with a disk of no bytes."""
        self._ends = array.array("Q")
        self._is_first_zero = False

    def __iter__(self) -> Iterator[base.Extent]:
        """Yield the ranges in ascending order."""
        start, is_zero = 0, self._is_first_zero
        for end in self._ends:
            yield base.Extent(start, end, is_zero)
            start, is_zero = end, not is_zero

    @property
    def end(self) -> int:
        """End of the last range, bytes."""
        return self._ends[-1] if self._ends else 0

    def append(self, length: int, *, is_zero: bool) -> None:
        """Add a range behind the last."""
        end = self.end + length
        if not self._ends:
            self._is_first_zero = is_zero
        elif is_zero == (self._is_first_zero ^ (len(self._ends) % 2 == 0)):
            self._ends[-1] = end
            return
        self._ends.append(end)


class MapReader:
    """Takes the JSON list of ``qemu-img map`` in parts, cut anywhere."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._found = ExtentMap()
        self._count = 0
        self._rest = bytearray()
        self._is_begun = False

    def take(self, part: bytes) -> None:
        """Take the next bytes.

        :raises DiskTooLargeError: when there are too many ranges.
        :raises UnsupportedError: when it is no such list.
        """
        self._rest += part
        end = self._rest.rfind(b"}") + 1
        if end:
            self._parse(bytes(self._rest[:end]))
            del self._rest[:end]
        if len(self._rest) > ITEM_SIZE_MAX:
            raise _unknown(f"a range takes more than {ITEM_SIZE_MAX} bytes")

    def finish(self) -> ExtentMap:
        """Return what was found; the list has come to its end.

        :raises UnsupportedError: when it has not.
        """
        if b"".join(self._rest.split()) != (b"]" if self._is_begun else b"[]"):
            raise _unknown("the list has no end")
        return self._found

    def _parse(self, text: bytes) -> None:
        """Take whole items, and what stands before and between them."""
        text = text.lstrip()
        opening = b"," if self._is_begun else b"["
        if not text.startswith(opening):
            raise _unknown("it is no list")
        self._is_begun = True
        try:
            items = untrusted_json.load(b"[" + text[1:] + b"]", "a map")
            for item in items:
                self._append(item)
        except (KeyError, TypeError, ValueError) as error:
            raise _unknown(str(error)) from error

    def _append(self, item: dict[str, object]) -> None:
        self._count += 1
        if self._count > EXTENTS_MAX:
            raise exception.DiskTooLargeError(
                f"the disk is in more than {EXTENTS_MAX} pieces of data and zeros",
                hint="convert the image (qemu-img convert -O qcow2) and upload it again",
            )
        start = untrusted_json.whole(item["start"], "start")
        if start != self._found.end:
            raise ValueError(f"a range begins at byte {start}, not {self._found.end}")
        length = untrusted_json.whole(item["length"], "length", lowest=1)
        self._found.append(length, is_zero=bool(item["zero"]))


def _unknown(reason: str) -> exception.UnsupportedError:
    return exception.UnsupportedError(f"qemu-img gave an unknown map: {reason}")
