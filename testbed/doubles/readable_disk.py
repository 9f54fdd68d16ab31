"""A disk in memory that is looked into, for tests."""

from acstor import exception


class ReadableDiskInMemory:
    """Disk of known bytes.

    :ivar error: raised in place of the bytes of a read.
    """

    def __init__(self, content: bytes) -> None:
        """Keep the bytes."""
        self._content = content
        self.size_bytes = len(content)
        self.error: exception.AcstorError | None = None

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the disk, as :meth:`acstor.repository.reading.DiskReader.read` does."""
        if self.error is not None:
            raise self.error
        if offset + size > self.size_bytes:
            raise exception.InvalidError(f"{size} bytes at {offset} are not on the disk")
        return self._content[offset : offset + size]
