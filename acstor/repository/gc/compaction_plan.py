"""Choice of the packs whose chunks a compaction moves.

Rewriting a pack of which a share of u is needed costs u bytes for each 1 - u that it frees. So the
packs of the lowest share are moved first, only as long as what is not needed is a notable part of
the whole, and none of which most is needed. Many small packs are joined, whatever is needed of
them: each is an object to list and to open.
"""

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from acstor import native
from acstor.repository import moved_packs, pack_reader
from acstor.repository.chunk_indexes import PACK_CLASS
from acstor.repository.gc.marking import Marker
from acstor.repository.gc.remembered_packs import RememberedPacks
from acstor.repository.moved_packs import Runs
from acstor.repository.repository import Repository
from acstor.repository.subjects import UNREADABLE

SMALL_COUNT = 10
"""Small packs of a class from which on they are joined."""
SMALL_SIZE = 4 << 20
"""Bytes below which a pack is small."""
BATCH_COUNT = 4096
"""Most packs that are moved together: their tables are in memory, and a record names them all."""
IMAGE = PACK_CLASS
VOLUME = "volume"


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what a compaction moves."""

    dead_share: float = 0.1
    """Share of a class's stored bytes that may be of no use."""
    live_share_max: float = 2 / 3
    """Most of a pack that may be needed for it to be moved."""
    pack_size: int = 64 << 20
    """Bytes at which a new pack is closed."""


class Reason(enum.StrEnum):
    """Reason for which a pack is moved."""

    SPARSE = "sparse"
    """Little of it is needed."""
    SMALL = "small"
    """It is one of many small ones."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A pack whose chunks can be moved."""

    pack: bytes
    pack_class: str
    size_bytes: int
    chunk_bytes: int
    """Stored bytes of all its chunks."""
    live_bytes: int
    """Stored bytes of those that are needed."""
    runs: Runs = dataclasses.field(repr=False)
    """Bytes that are needed."""
    reason: Reason = Reason.SPARSE

    @property
    def dead_bytes(self) -> int:
        """Stored bytes of chunks that nothing needs."""
        return self.chunk_bytes - self.live_bytes

    @property
    def live_share(self) -> float:
        """Needed part of its chunks."""
        return self.live_bytes / self.chunk_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Packs to be moved."""

    candidates: tuple[Candidate, ...] = ()
    """Those of one class together, of each the lowest share first."""
    stored_bytes: int = 0
    """Bytes of all packs of which something is needed and that could be moved."""
    dead_bytes: int = 0
    """Bytes of chunks in them that nothing needs."""

    @property
    def live_bytes(self) -> int:
        """Bytes that are to be copied."""
        return sum(one.live_bytes for one in self.candidates)

    def batches(self, limits: Limits) -> Iterator[Sequence[Candidate]]:
        """Yield packs that are moved together: of one class, as much as fills one new pack."""
        batch: list[Candidate] = []
        size = 0
        for one in self.candidates:
            is_full = size + one.live_bytes > limits.pack_size or len(batch) == BATCH_COUNT
            if batch and (is_full or batch[0].pack_class != one.pack_class):
                yield batch
                batch, size = [], 0
            batch.append(one)
            size += one.live_bytes
        if batch:
            yield batch


def make_plan(
    repository: Repository, limits: Limits, remembered: RememberedPacks | None = None
) -> Plan:
    """Choose what to move; the summary of every manifest is read.

    :raises CorruptError: when a record or a manifest cannot be read.
    :raises UnsupportedError: when a newer release wrote one of them.
    """
    by_class: defaultdict[str, list[Candidate]] = defaultdict(list)
    for one in _candidates(repository, remembered):
        by_class[one.pack_class].append(one)
    chosen: list[Candidate] = []
    for pack_class in sorted(by_class):
        chosen.extend(_chosen(by_class[pack_class], limits))
    everything = [one for candidates in by_class.values() for one in candidates]
    return Plan(
        tuple(chosen),
        sum(one.size_bytes for one in everything),
        sum(one.dead_bytes for one in everything),
    )


def _candidates(repository: Repository, remembered: RememberedPacks | None) -> Iterator[Candidate]:
    """Yield every pack that can be moved and of which something is needed.

    Not those that were moved, or that were made by so many moves that readers follow no further;
    not those that a fold or another compaction is making or copying.
    """
    marker = Marker(repository, remembered, is_whole=True)
    marked = marker.mark()
    followed = marker.followed
    of_images = marker.packs_of_images()
    for pack, runs in sorted(followed.needed.items()):
        is_busy = pack.hex() in marked.kept
        is_far = followed.hops.get(pack, 0) >= moved_packs.HOPS_MAX
        if is_busy or is_far or pack in followed.met:
            continue
        try:
            header = pack_reader.read_header(repository.origin, pack)
            found = _measured(header, is_of_image=pack.hex() in of_images)
        except UNREADABLE:
            continue  # 'acstor repository verify' names it
        if found.chunk_size == repository.chunk_size:
            live_bytes = sum(end - start for start, end in runs)
            yield Candidate(
                pack, found.pack_class, found.size_bytes, found.chunk_bytes, live_bytes, runs
            )


class _Measured(NamedTuple):
    pack_class: str
    chunk_size: int
    size_bytes: int
    chunk_bytes: int


def _measured(header: bytes, *, is_of_image: bool) -> _Measured:
    """Return class and sizes of the pack that begins so.

    One of version 1 does not say of which class it is, so that follows from who needs it.
    """
    with native.map_errors("reading the header of a pack"):
        if pack_reader.version_of(header) == pack_reader.STORED_VERSION:
            parsed = native.PackHeader.parse(header)
            chunk_bytes = parsed.table_offset - pack_reader.DATA_OFFSET
            return _Measured(parsed.pack_class, parsed.chunk_size, parsed.size_bytes, chunk_bytes)
        chunk_size, count, _salt = native.parse_pack_header(header)
        chunk_bytes = chunk_size * count
        size_bytes = chunk_bytes + pack_reader.overhead_of(header)
        return _Measured(IMAGE if is_of_image else VOLUME, chunk_size, size_bytes, chunk_bytes)


def _chosen(candidates: Sequence[Candidate], limits: Limits) -> list[Candidate]:
    """Choose among the packs of one class."""
    stored = sum(one.size_bytes for one in candidates)
    dead = sum(one.dead_bytes for one in candidates)
    chosen = []
    for one in sorted(candidates, key=lambda one: (one.live_share, one.pack)):
        if dead <= limits.dead_share * stored or one.live_share > limits.live_share_max:
            break
        chosen.append(one)
        dead -= one.dead_bytes
        stored -= one.dead_bytes
    taken = {one.pack for one in chosen}
    small_size = min(SMALL_SIZE, limits.pack_size)
    small = [one for one in candidates if one.size_bytes < small_size and one.pack not in taken]
    if len(small) >= SMALL_COUNT:
        chosen.extend(dataclasses.replace(one, reason=Reason.SMALL) for one in small)
    return chosen
