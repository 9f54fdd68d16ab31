"""An image source over bytes, for tests."""

from collections.abc import Iterator

from acstor import exception, native
from acstor.repository.source import base


class MemorySource(base.ImageSource):
    """A disk of the given content; ``holes`` are half-open byte ranges known to be zero."""

    def __init__(self, content: bytes, holes: list[tuple[int, int]] | None = None) -> None:
        self.content = content + bytes(-len(content) % base.SECTOR_SIZE)
        self.size_bytes = len(self.content)
        self.holes = holes or []
        self.is_changed = False

    def extents(self) -> Iterator[base.Extent]:
        position = 0
        for start, end in self.holes:
            if start > position:
                yield base.Extent(position, start, is_zero=False)
            yield base.Extent(start, end, is_zero=True)
            position = end
        if position < self.size_bytes:
            yield base.Extent(position, self.size_bytes, is_zero=False)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        part = self.content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        buffer[len(part) :] = bytes(len(buffer) - len(part))
        return native.scan_buffer(buffer, chunk_size, scope)

    def read(self, offset: int, size: int) -> bytes:
        return self.content[offset : offset + size]

    def check_unchanged(self) -> None:
        if self.is_changed:
            raise exception.ImageRefusedError("the image was changed")
