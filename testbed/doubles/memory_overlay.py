"""Content that was written over a manifest, in memory."""

from collections.abc import Mapping, Sequence

from acstor.repository.reading.disk_reader import WrittenRun


class MemoryOverlay:
    """Writes that do not overlap; see :class:`acstor.repository.reading.disk_reader.Overlay`.

    :param writes: content by offset; a number of bytes: so many zeros.
    """

    def __init__(self, writes: Mapping[int, bytes | int]) -> None:
        self._writes = dict(sorted(writes.items()))
        self.is_closed = False

    def runs(self) -> Sequence[WrittenRun]:
        return [
            WrittenRun(offset, offset + content, is_zero=True)
            if isinstance(content, int)
            else WrittenRun(offset, offset + len(content), is_zero=False)
            for offset, content in self._writes.items()
        ]

    def read_into(self, offset: int, out: memoryview) -> None:
        for start, content in self._writes.items():
            if isinstance(content, bytes) and start <= offset < start + len(content):
                out[:] = content[offset - start : offset - start + len(out)]
                return
        raise AssertionError(f"nothing was written at {offset}")

    def close(self) -> None:
        self.is_closed = True
