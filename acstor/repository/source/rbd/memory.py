"""A snapshot in memory."""

from collections.abc import Sequence

from acstor import exception
from acstor.repository.source.rbd import base
from acstor.repository.source.rbd.data_ranges import DataRanges


class MemorySnapshot(base.BlockSnapshot):
    """A snapshot of the given content.

    :param data: ranges that may hold data, offset and length; None: all of it.
    """

    def __init__(
        self, content: bytes, data: Sequence[tuple[int, int]] | None = None, name: str = "memory"
    ) -> None:
        """Keep the content."""
        self.name = name
        self.size_bytes = len(content)
        self.is_removed = False
        self._content = content
        self._data = [(0, len(content))] if data is None else list(data)

    def list_data(self) -> DataRanges:
        """Return the ranges."""
        if self.is_removed:
            raise exception.NotFoundError(f"there is no {self.name}")
        found = DataRanges(self.size_bytes)
        for offset, length in self._data:
            found.add(offset, length)
        return found

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of the content, zeros of a snapshot that was removed."""
        if offset < 0 or offset + size > self.size_bytes:
            raise exception.InternalError(f"byte {offset + size} of {self.name} is none of it")
        return bytes(size) if self.is_removed else self._content[offset : offset + size]

    def is_there(self) -> bool:
        """Return whether a test has not removed it."""
        return not self.is_removed
