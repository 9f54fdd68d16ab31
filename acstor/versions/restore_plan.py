"""Plan of an in-place restore: which bytes are moved to give a disk the content of a version.

Three ways lead there. The *reverse* delta is what the version has otherwise than the disk as it is
now: it is written over that. The *differential* delta is what the version has otherwise than its
base: it is written over an empty layer on the base, which the host has. *Lazily* nothing is written
at first: the disk is made of the version as an image, and chunks come when they are read. The way
with fewest bytes to move is taken; what the host has already is not moved.

Source: CloudVS, §3.7, of which the choice between the first two is the open question, and §3.2 for
the differential delta. Differs: chunks that the host holds under their digest, at whatever place
and of whatever disk, count as local.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol


class PlacedChunk(Protocol):
    """Place of a chunk with content, as manifests have it."""

    @property
    def digest(self) -> bytes:
        """Name of the content."""

    @property
    def stored_size(self) -> int:
        """Bytes that are moved to have it."""


class DiskContent(Protocol):
    """Content of a disk by the chunk: a manifest of the repository is one."""

    @property
    def size_bytes(self) -> int:
        """Size of the disk, bytes."""

    @property
    def chunk_size(self) -> int:
        """Size of a chunk, bytes."""

    def entries(self) -> Iterable[tuple[int, PlacedChunk]]:
        """Yield index and place of every chunk with content, ascending."""


class Method(enum.StrEnum):
    """Way of a restore; of those with equally many bytes the first is taken."""

    REVERSE = "reverse"
    """Write what is other than on the disk as it is now."""
    DIFFERENTIAL = "differential"
    """Write what is other than in the base on an empty layer."""
    LAZY = "lazy"
    """Write nothing; fetch what is read."""


class Supply(enum.StrEnum):
    """Supply of the content of an extent."""

    FETCH = "fetch"
    """It is moved to the host."""
    LOCAL = "local"
    """The host has it."""
    ZERO = "zero"
    """It is zeros."""


class Extent(NamedTuple):
    """Bytes of the disk that are written."""

    offset: int
    length: int
    supply: Supply


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one way."""

    fetched_bytes: int = 0
    """Bytes to move, as they are stored."""
    local_bytes: int = 0
    """Bytes that would be moved if the host did not have them, as they are stored."""
    written_bytes: int = 0
    """Bytes to write, of the disk."""


@dataclasses.dataclass(frozen=True, slots=True)
class RestorePlan:
    """Plan of a restore."""

    method: Method
    costs: Mapping[Method, Cost]
    """Costs of every way that is allowed."""
    extents: tuple[Extent, ...]
    """Extents to write, ascending; of :attr:`Method.LAZY` none."""

    @property
    def cost(self) -> Cost:
        """Cost of the way that is taken."""
        return self.costs[self.method]

    @property
    def reason(self) -> str:
        """Comparison by which this way is taken, in one line."""
        costs = ", ".join(f"{way} moves {cost.fetched_bytes}" for way, cost in self.costs.items())
        return f"{self.method} moves fewest bytes: {costs}"


@dataclasses.dataclass(frozen=True, slots=True)
class CurrentDisk:
    """A disk as it is now."""

    content: DiskContent
    """Content as it was last known: of the newest version, or of the base."""
    changed: Collection[int] = frozenset()
    """Indexes of chunks that were written since, whose content nobody has looked at: the offsets
    that the paper's working VM sends."""


Change = tuple[int, PlacedChunk | None]
"""Index of a chunk to write, and its content; None: zeros."""


def plan_restore(
    target: DiskContent,
    current: CurrentDisk | None,
    base: DiskContent | None,
    is_local: Callable[[bytes], bool],
    working_set: Collection[int] | None = None,
    *,
    is_lazy_allowed: bool = False,
) -> RestorePlan:
    """Return how to give a disk the content of a version with fewest bytes to move.

    :param target: content of the version.
    :param current: the disk as it is now; None: it is lost, or of another chunk size.
    :param base: content of the version's base, which the host has; None: it has none, and an empty
        layer is over zeros.
    :param is_local: returns whether the host has a chunk of that digest.
    :param working_set: indexes of the chunks that a boot reads, which the lazy way moves; None: it
        is not known, and everything that the base does not have may be read.
    :param is_lazy_allowed: whether the disk may be made anew: what is beside it is lost then.
    """
    ways: dict[Method, list[Change]] = {}
    if current is not None and current.content.chunk_size == target.chunk_size:
        ways[Method.REVERSE] = list(_reverse(target, current))
    differential = list(_differences(target, base))
    ways[Method.DIFFERENTIAL] = differential
    costs = {way: _cost(changes, target, is_local) for way, changes in ways.items()}
    if is_lazy_allowed:
        read = None if working_set is None else frozenset(working_set)
        wanted = [one for one in differential if read is None or one[0] in read]
        costs[Method.LAZY] = dataclasses.replace(_cost(wanted, target, is_local), written_bytes=0)
    order = list(Method)
    method = min(costs, key=lambda way: (costs[way].fetched_bytes, order.index(way)))
    extents = tuple(_extents(ways.get(method, []), target, is_local))
    return RestorePlan(method, costs, extents)


def _reverse(target: DiskContent, current: CurrentDisk) -> Iterator[Change]:
    """Yield what the version has otherwise than the disk as it is now."""
    chunk_count = -(-target.size_bytes // target.chunk_size)
    unknown = {index for index in current.changed if index < chunk_count}
    wanted: dict[int, PlacedChunk | None] = dict.fromkeys(unknown)
    wanted.update(_differences(target, current.content))
    if unknown:
        wanted.update((index, chunk) for index, chunk in target.entries() if index in unknown)
    yield from sorted(wanted.items())


def _differences(target: DiskContent, other: DiskContent | None) -> Iterator[Change]:
    """Yield what one disk has otherwise than another, ascending; beyond its end that has zeros."""
    chunk_count = -(-target.size_bytes // target.chunk_size)
    others = iter(other.entries() if other is not None else ())
    beside = next(others, None)
    for index, chunk in target.entries():
        while beside is not None and beside[0] < index:
            yield beside[0], None
            beside = next(others, None)
        if beside is not None and beside[0] == index:
            if beside[1].digest != chunk.digest:
                yield index, chunk
            beside = next(others, None)
        else:
            yield index, chunk
    while beside is not None and beside[0] < chunk_count:
        yield beside[0], None
        beside = next(others, None)


def _supply(chunk: PlacedChunk | None, is_local: Callable[[bytes], bool]) -> Supply:
    if chunk is None:
        return Supply.ZERO
    return Supply.LOCAL if is_local(chunk.digest) else Supply.FETCH


def _cost(
    changes: Iterable[Change], target: DiskContent, is_local: Callable[[bytes], bool]
) -> Cost:
    """Add up what changes cost; content that comes several times is moved once."""
    sizes: dict[Supply, int] = dict.fromkeys(Supply, 0)
    seen: set[bytes] = set()
    written = 0
    for index, chunk in changes:
        written += _length(index, target)
        if chunk is not None and chunk.digest not in seen:
            seen.add(chunk.digest)
            sizes[_supply(chunk, is_local)] += chunk.stored_size
    return Cost(sizes[Supply.FETCH], sizes[Supply.LOCAL], written)


def _length(index: int, target: DiskContent) -> int:
    """Return the bytes of a chunk that are on the disk."""
    return min(target.chunk_size, target.size_bytes - index * target.chunk_size)


def _extents(
    changes: Iterable[Change], target: DiskContent, is_local: Callable[[bytes], bool]
) -> Iterator[Extent]:
    """Yield what is written, neighbours of one supply as one."""
    seen: set[bytes] = set()
    open_extent: Extent | None = None
    for index, chunk in changes:
        supply = _supply(chunk, is_local)
        if supply is Supply.FETCH and chunk is not None:
            if chunk.digest in seen:
                supply = Supply.LOCAL
            seen.add(chunk.digest)
        offset, length = index * target.chunk_size, _length(index, target)
        if open_extent is not None:
            end = open_extent.offset + open_extent.length
            if (end, open_extent.supply) == (offset, supply):
                open_extent = open_extent._replace(length=open_extent.length + length)
                continue
            yield open_extent
        open_extent = Extent(offset, length, supply)
    if open_extent is not None:
        yield open_extent
