"""Interface of a disk that a capture reads: its content at one moment, and its layers.

Implemented by :class:`.NbdDisk` and :class:`.RawFileDisk`, and for tests in memory and with faults
(``testbed/doubles/memory_disk.py``).
"""

import abc
from collections.abc import Iterator
from typing import NamedTuple

SECTOR_SIZE = 512
"""Sizes of disks are multiples of this, bytes."""


class LayeredExtent(NamedTuple):
    """A half-open range of a disk, bytes."""

    start: int
    end: int
    is_zero: bool
    """True if every byte is known to be zero without reading it."""
    is_own: bool
    """True if it may be unlike what the disk is based on: its own file has it."""


class DiskSource(abc.ABC):
    """A disk at one moment. Methods may raise :class:`~acstor.exception.UnavailableError`."""

    device: str
    size_bytes: int
    """Size of the disk, a multiple of 512."""
    tells_layers: bool = False
    """False: every extent counts as its own."""

    @abc.abstractmethod
    def extents(self) -> Iterator[LayeredExtent]:
        """Yield ranges that cover the disk without gap or overlap, in ascending order."""

    @abc.abstractmethod
    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset`` on; the range is on the disk."""

    @abc.abstractmethod
    def check_unchanged(self) -> None:
        """Refuse when what was read need not be of one moment.

        :raises ConflictError: when the disk was written to, or the guest was started, meanwhile.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release what the source holds; closing again does nothing."""
