"""Disks that captures read, in memory and with faults."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from acstor import exception
from acstor.agent.captures.sources.base import DiskSource, LayeredExtent


class MemoryDisk(DiskSource):
    """A disk on a base, by the block.

    :param own: content by the number of the block; None: zeros of its own.
    :param base: content of the base, likewise.
    :param check: as of other sources.
    """

    def __init__(
        self,
        device: str,
        blocks: int,
        own: Mapping[int, bytes | None],
        base: Mapping[int, bytes] | None = None,
        *,
        block_size: int = 4096,
        tells_layers: bool = True,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.device = device
        self.tells_layers = tells_layers
        self.size_bytes = blocks * block_size
        self._block_size = block_size
        self._blocks = blocks
        self._own = dict(own)
        self._base = dict(base or {})
        self._check = check
        self.read_bytes = 0
        self.is_closed = False

    def content(self) -> bytes:
        """Return all of it."""
        return b"".join(self._block(number) for number in range(self._blocks))

    def extents(self) -> Iterator[LayeredExtent]:
        """See :class:`.DiskSource`."""
        for number in range(self._blocks):
            is_own = number in self._own
            content = self._own[number] if is_own else self._base.get(number)
            start = number * self._block_size
            yield LayeredExtent(
                start,
                start + self._block_size,
                content is None,
                is_own or not self.tells_layers,
            )

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """See :class:`.DiskSource`."""
        self.read_bytes += len(buffer)
        buffer[:] = self.content()[offset : offset + len(buffer)]

    def check_unchanged(self) -> None:
        """See :class:`.DiskSource`."""
        self._check()

    def close(self) -> None:
        """See :class:`.DiskSource`."""
        self.is_closed = True

    def _block(self, number: int) -> bytes:
        content = self._own[number] if number in self._own else self._base.get(number)
        return bytes(self._block_size) if content is None else content


@dataclass
class FaultyDisk(DiskSource):
    """A disk whose reads fail from one of them on, or that was written to."""

    inner: DiskSource
    reads_before: int | None = None
    """Reads that go well; None: all."""
    is_changed: bool = False
    reads: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.device = self.inner.device
        self.size_bytes = self.inner.size_bytes
        self.tells_layers = self.inner.tells_layers

    def extents(self) -> Iterator[LayeredExtent]:
        """See :class:`.DiskSource`."""
        return self.inner.extents()

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """See :class:`.DiskSource`."""
        self.reads += 1
        if self.reads_before is not None and self.reads > self.reads_before:
            raise exception.UnavailableError(f"disk {self.device} cannot be read")
        self.inner.read_into(offset, buffer)

    def check_unchanged(self) -> None:
        """See :class:`.DiskSource`."""
        if self.is_changed:
            raise exception.ConflictError(f"disk {self.device} was written to")
        self.inner.check_unchanged()

    def close(self) -> None:
        """See :class:`.DiskSource`."""
        self.inner.close()
