"""Disks that restores write to, in memory and with faults."""

from collections.abc import Mapping

from acstor import exception
from acstor.agent.restores.target import DiskTarget
from testbed.doubles.memory_disk import MemoryDisk


class MemoryTarget(MemoryDisk, DiskTarget):
    """A disk on a base, by the block, that is written by whole blocks.

    :param writes_before: blocks that are written before one fails; None: all are.
    """

    def __init__(
        self,
        blocks: int,
        own: Mapping[int, bytes | None],
        base: Mapping[int, bytes] | None = None,
        *,
        block_size: int = 4096,
        tells_layers: bool = True,
        writes_before: int | None = None,
    ) -> None:
        super().__init__("vda", blocks, own, base, block_size=block_size, tells_layers=tells_layers)
        self.writes_before = writes_before
        self.written: list[int] = []
        self.is_finished = False

    def write(self, offset: int, data: memoryview) -> None:
        """See :class:`.DiskTarget`."""
        assert not offset % self._block_size
        assert not len(data) % self._block_size
        for begin in range(0, len(data), self._block_size):
            if self.writes_before is not None and len(self.written) >= self.writes_before:
                raise exception.UnavailableError("disk vda cannot be written to")
            number = (offset + begin) // self._block_size
            content = bytes(data[begin : begin + self._block_size])
            self._own[number] = content if any(content) else None
            self.written.append(number)

    def finish(self) -> None:
        """See :class:`.DiskTarget`."""
        self.is_finished = True
        self.close()
