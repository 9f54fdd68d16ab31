"""Differences of two versions of a disk."""

import dataclasses
from collections.abc import Iterable

import pytest

from acstor import exception
from acstor.versions.differences import CHUNKS_MAX, ZeroDisk, differing_extents

SIZE = 4


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Place of a chunk."""

    digest: bytes
    stored_size: int = 1


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk with a letter for each chunk, a dot for zeros."""

    letters: str
    chunk_size: int = SIZE
    lacks: int = 0
    """Bytes that its last chunk has less."""

    @property
    def size_bytes(self) -> int:
        """Size of the disk."""
        return len(self.letters) * self.chunk_size - self.lacks

    def entries(self) -> Iterable[tuple[int, Chunk]]:
        """Yield the chunks with content."""
        for index, letter in enumerate(self.letters):
            if letter != ".":
                yield index, Chunk(letter.encode())


@pytest.mark.parametrize(
    ("one", "other", "extents"),
    [
        ("ABC", "ABC", []),
        ("ABC", "AXC", [(4, 4)]),
        ("A.C", "AB.", [(4, 8)]),
        ("AB.DE", "XB.XX", [(0, 4), (12, 8)]),
        ("ABCD", "AB", [(8, 8)]),
        ("AB", "ABCD", []),
        ("..", "AB", [(0, 8)]),
    ],
)
def test_extents(one: str, other: str, extents: list[tuple[int, int]]) -> None:
    assert differing_extents(Disk(one), Disk(other)) == extents


def test_last_chunk_ends_with_the_disk() -> None:
    assert differing_extents(Disk("AB", lacks=1), Disk("AX", lacks=1)) == [(4, 3)]


def test_disk_of_zeros_differs_where_there_is_content() -> None:
    zeros = ZeroDisk(12, SIZE)
    assert differing_extents(zeros, Disk(".A.")) == [(4, 4)]
    assert differing_extents(Disk(".A."), zeros) == [(4, 4)]
    assert differing_extents(zeros, zeros) == []


def test_chunks_of_other_sizes_and_too_many_are_refused() -> None:
    with pytest.raises(exception.UnsupportedError):
        differing_extents(Disk("A"), Disk("A", chunk_size=8))
    with pytest.raises(exception.UnsupportedError):
        differing_extents(ZeroDisk((CHUNKS_MAX + 1) * SIZE, SIZE), Disk("A"))
