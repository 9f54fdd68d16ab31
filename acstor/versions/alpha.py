"""Fragmentation of a version, and the chunk groups that alpha has stored anew.

A version whose chunks lie in the packs of many versions is restored by jumping between these. The
share *alpha* of its chunk groups, those with most jumps, is stored anew beside what the version has
stored itself; of all others it goes on naming what others have stored. Alpha 0 stores incremental
deltas, alpha 1 differential ones.

Source: Tang, Lee and Wong, *A Tunable Version Control System for Virtual Machines in an Open-Source
Cloud* (CloudVS), §3.3 with Figures 3 and 4; over several disks §3.5 with Figure 6. The paper leaves
three things open. A share of groups that is no whole number is rounded down, so that alpha is never
exceeded. Chunks that are zero where the base has content are no part of a group: nothing is read.
Groups of equal count come in the order of the disk, as the paper's example has them, or the
cheapest first.
"""

import dataclasses
import enum
import fractions
import itertools
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from acstor import exception

GROUP_CHUNKS_DEFAULT = 32
"""Chunks of a group: 2 MiB of chunks of 64 KiB, as the paper's 500 of 4 KiB."""
GROUP_CHUNKS_MAX = 1 << 20
"""Most chunks of a group."""

Home = TypeVar("Home", bound=Hashable)
"""Version in whose packs a chunk lies."""


class TieBreak(enum.StrEnum):
    """Order of groups with equally many non-sequential reads."""

    DISK_ORDER = "disk-order"
    """The first on the disk comes first: the paper's example."""
    FEWEST_BYTES = "fewest-bytes"
    """The one of which fewest bytes have to be stored anew comes first."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeltaChunk(Generic[Home]):
    """A chunk with content that is unlike the base's at its place."""

    index: int
    """Number of the chunk on the disk."""
    home: Home
    stored_bytes: int = 1
    """Bytes that it takes in a pack."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkGroup(Generic[Home]):
    """Consecutive chunks of a differential delta."""

    chunks: tuple[DeltaChunk[Home], ...]

    @property
    def non_sequential_reads(self) -> int:
        """Reads inside of the group that go on in another version than the one before."""
        return non_sequential_reads(self.chunks)

    def foreign(self, own: Home) -> tuple[DeltaChunk[Home], ...]:
        """Return the chunks that lie in other versions."""
        return tuple(chunk for chunk in self.chunks if chunk.home != own)

    def foreign_bytes(self, own: Home) -> int:
        """Return the stored bytes of the chunks that lie in other versions."""
        return sum(chunk.stored_bytes for chunk in self.foreign(own))


@dataclasses.dataclass(frozen=True, slots=True)
class Regrouping(Generic[Home]):
    """Chunk groups of a version that become differential, and their price."""

    groups: int
    """Groups of the whole differential delta."""
    differential: tuple[ChunkGroup[Home], ...]
    """Groups that are stored as a differential delta, in the order of the disk."""
    anew: tuple[DeltaChunk[Home], ...]
    """Chunks to store anew, although others have them; in the order of the disk."""
    reads_before: int
    """Non-sequential reads of a restore of the whole delta, from group to group included."""
    reads_after: int
    """The same once these chunks are stored anew."""

    @property
    def bytes_anew(self) -> int:
        """Stored bytes of the chunks to store anew."""
        return sum(chunk.stored_bytes for chunk in self.anew)


def non_sequential_reads(chunks: Sequence[DeltaChunk[Home]]) -> int:
    """Return how many chunks lie in another version than the chunk before them."""
    return sum(one.home != following.home for one, following in itertools.pairwise(chunks))


def chunk_groups(
    chunks: Sequence[DeltaChunk[Home]], group_chunks: int = GROUP_CHUNKS_DEFAULT
) -> Iterator[ChunkGroup[Home]]:
    """Yield the groups of a differential delta; all but the last have the same number of chunks.

    :param chunks: in the order of the disk.
    :raises InvalidError: when the size of a group is out of range.
    """
    if not 1 <= group_chunks <= GROUP_CHUNKS_MAX:
        raise exception.InvalidError(
            f"a chunk group of {group_chunks} chunks is not from 1 to {GROUP_CHUNKS_MAX}"
        )
    for first in range(0, len(chunks), group_chunks):
        yield ChunkGroup(tuple(chunks[first : first + group_chunks]))


def differential_count(groups: int, alpha: float) -> int:
    """Return how many of the groups become differential.

    :raises InvalidError: when alpha is not from 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise exception.InvalidError(
            f"alpha {alpha!r:.20} is not from 0 to 1",
            hint="0 stores incremental deltas, 1 differential ones",
        )
    # As it is written: the nearest float of 0.29 is a little less, and would lose a group of 100.
    return int(fractions.Fraction(str(alpha)) * groups)


def regroup(
    chunks: Sequence[DeltaChunk[Home]],
    own: Home,
    alpha: float,
    group_chunks: int = GROUP_CHUNKS_DEFAULT,
    tie_break: TieBreak = TieBreak.DISK_ORDER,
) -> Regrouping[Home]:
    """Return which chunk groups of a version are to be stored anew.

    Reads from one group to the next are not counted: in the paper's example the second group would
    else have two, and win.

    :param chunks: of the version's differential delta, in the order of the disk.
    :param own: the version.
    :raises InvalidError: when alpha or the size of a group is out of range, or the order is wrong.
    """
    if any(one.index >= following.index for one, following in itertools.pairwise(chunks)):
        raise exception.InvalidError("the chunks of a delta are not in the order of the disk")
    groups = list(chunk_groups(chunks, group_chunks))
    count = differential_count(len(groups), alpha)

    def rank(number: int) -> tuple[int, int]:
        group = groups[number]
        price = group.foreign_bytes(own) if tie_break is TieBreak.FEWEST_BYTES else 0
        return -group.non_sequential_reads, price

    # Stable: groups of equal rank stay in the order of the disk.
    chosen = sorted(sorted(range(len(groups)), key=rank)[:count])
    differential = tuple(groups[number] for number in chosen)
    anew = tuple(chunk for group in differential for chunk in group.foreign(own))
    stored = {chunk.index for chunk in anew}
    after = [
        dataclasses.replace(chunk, home=own) if chunk.index in stored else chunk for chunk in chunks
    ]
    return Regrouping(
        groups=len(groups),
        differential=differential,
        anew=anew,
        reads_before=non_sequential_reads(chunks),
        reads_after=non_sequential_reads(after),
    )
