"""Differences of two versions of a disk."""

import dataclasses
from collections.abc import Iterable, Iterator

import pytest

from acstor import exception
from acstor.versions.differences import CHUNKS_MAX, READ_CHUNKS_MAX, ZeroDisk, differing_extents

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


@dataclasses.dataclass(frozen=True)
class Written:
    """A disk that can be read; of some chunks something was written over the manifest."""

    content: bytes
    chunks: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Size of the disk."""
        return len(self.content)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes; all of them are on the disk."""
        assert 0 <= offset <= offset + size <= len(self.content)
        return self.content[offset : offset + size]

    def written_chunks(self, chunk_size: int) -> Iterator[int]:
        """Yield the chunks."""
        assert chunk_size == SIZE
        yield from self.chunks


@pytest.mark.parametrize(
    ("one", "other", "extents"),
    [
        # Written as it was, and as the other has it in its manifest.
        (Written(b"aaaabbbb", (0,)), Written(b"aaaabbbb"), []),
        (Written(b"xaaabbbb", (0,)), Written(b"aaaabbbb"), [(0, 4)]),
        (Written(b"aaaabbbb"), Written(b"aaaabbbx", (1,)), [(4, 4)]),
        (Written(b"aaaabb", (1,)), Written(b"aaaabbbx", (1,)), []),
        (Written(b"aaaa\0\0\0\0", (1,)), Written(b"aaaa"), []),
        (Written(b"aaaabbbb", (1,)), Written(b"aa", ()), [(4, 4)]),
        (Written(b"aaaa"), Written(b"aaaabbbb", (1, 1)), []),
    ],
)
def test_written_chunks_are_read(
    one: Written, other: Written, extents: list[tuple[int, int]]
) -> None:
    manifests = tuple(
        Disk("AB"[: -(-disk.size_bytes // SIZE)], lacks=-disk.size_bytes % SIZE)
        for disk in (one, other)
    )
    expected = extents
    if other.size_bytes == 2:
        manifests = (Disk("AB"), Disk("A", lacks=2))
    assert differing_extents(manifests[0], manifests[1], (one, other)) == expected


def test_manifests_are_compared_beside_what_was_written() -> None:
    disks = (Written(b"xxxxbbbbcccc", (0,)), Written(b"aaaayyyycccc"))
    assert differing_extents(Disk("ABC"), Disk("AYC"), disks) == [(0, 8)]


def test_too_much_that_was_written_is_refused() -> None:
    size = (READ_CHUNKS_MAX + 1) * SIZE
    disk = Written(bytes(size), tuple(range(READ_CHUNKS_MAX + 1)))
    zeros = ZeroDisk(size, SIZE)
    with pytest.raises(exception.UnsupportedError, match="pushed since"):
        differing_extents(zeros, zeros, (disk, disk))


def test_chunks_of_other_sizes_and_too_many_are_refused() -> None:
    with pytest.raises(exception.UnsupportedError):
        differing_extents(Disk("A"), Disk("A", chunk_size=8))
    with pytest.raises(exception.UnsupportedError):
        differing_extents(ZeroDisk((CHUNKS_MAX + 1) * SIZE, SIZE), Disk("A"))
