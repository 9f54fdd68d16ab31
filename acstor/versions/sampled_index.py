"""Index of the chunks of many packs in bounded memory: one digest in so many, and what is near it.

It finds duplicates across hosts at the origin's side, where the digests of all packs do not fit in
memory. Of each pack the digests that end in a number of zero bits are remembered. A chunk with such
a digest leads to a pack; its table is read, and neighbours of the chunk, which are mostly stored
side by side wherever they come from, are found there.

Source: Lillibridge and others, *Sparse Indexing* (FAST 2009), for samples that lead to what is
stored together; CloudVS, §3.9, whose future work it is to find duplicates of several hosts. Differs
from both: no hash table is distributed, and the oldest samples are forgotten where there is no room
for more.
"""

import array
import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence

from acstor import exception

SAMPLE_BITS_DEFAULT = 6
"""Bits of a digest that are zero in a sample: one chunk in 64 is one."""
SAMPLE_BITS_MAX = 16
"""Most bits: one chunk in 65,536 leads nowhere any more."""
WAYS = 8
"""Samples of a bucket, of which the one that was used longest ago makes room."""
SAMPLE_BYTES = 12
"""Bytes of memory of a sample: the first of its digest, and the number of its pack."""

_FREE = 0
"""Number of no pack."""

LoadDigests = Callable[[bytes], Iterable[bytes] | None]
"""Returns the digests of a pack's chunks; None where the pack is not to be relied on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the index's memory."""

    samples: int = 1 << 22
    """Most samples; with one chunk in 64, of chunks of 64 KiB, 16 TiB in 48 MiB."""
    packs: int = 1 << 18
    """Most packs that samples lead to."""
    tables: int = 64
    """Most packs whose digests are kept."""

    def __post_init__(self) -> None:
        """Refuse what is no limit.

        :raises InvalidError: when one is out of range.
        """
        if self.samples < WAYS or not 1 <= self.packs < 1 << 32 or self.tables < 1:
            raise exception.InvalidError("a limit of an index of samples is out of range")


class _Samples:
    """Samples in buckets of :data:`WAYS`, the one that was used last at the front of each."""

    def __init__(self, samples_max: int) -> None:
        self._buckets = samples_max // WAYS
        self._prefixes = array.array("Q", bytes(8 * self._buckets * WAYS))
        self._packs = array.array("I", bytes(4 * self._buckets * WAYS))

    @property
    def memory_bytes(self) -> int:
        return sum(one.itemsize * len(one) for one in (self._prefixes, self._packs))

    def put(self, digest: bytes, pack: int) -> None:
        prefix, bucket = self._place(digest)
        for slot in range(bucket, bucket + WAYS):
            if self._packs[slot] and self._prefixes[slot] == prefix:
                break
        self._to_front(bucket, slot, prefix, pack)

    def find(self, digest: bytes) -> int:
        prefix, bucket = self._place(digest)
        for slot in range(bucket, bucket + WAYS):
            if self._packs[slot] and self._prefixes[slot] == prefix:
                pack = self._packs[slot]
                self._to_front(bucket, slot, prefix, pack)
                return pack
        return _FREE

    def forget(self, digest: bytes) -> None:
        prefix, bucket = self._place(digest)
        for slot in range(bucket, bucket + WAYS):
            if self._prefixes[slot] == prefix:
                self._packs[slot] = _FREE

    def _place(self, digest: bytes) -> tuple[int, int]:
        """Return the first bytes of a digest as a number, and the first slot of its bucket."""
        prefix = int.from_bytes(digest[:8], "little")
        return prefix, int.from_bytes(digest[8:16], "little") % self._buckets * WAYS

    def _to_front(self, bucket: int, slot: int, prefix: int, pack: int) -> None:
        """Move what is before a slot one on, over it, and put a sample in front."""
        self._prefixes[bucket + 1 : slot + 1] = self._prefixes[bucket:slot]
        self._packs[bucket + 1 : slot + 1] = self._packs[bucket:slot]
        self._prefixes[bucket], self._packs[bucket] = prefix, pack


class SampledIndex:
    """Packs by samples of their digests. Not thread-safe.

    :param load: returns the digests of a pack that a sample led to. What it returns counts, not
        what the index remembers: a pack that is being collected is None.
    :param sample_bits: one chunk in 2 to that power is a sample.
    :raises InvalidError: when that is out of range.
    """

    def __init__(
        self,
        load: LoadDigests,
        limits: Limits | None = None,
        sample_bits: int = SAMPLE_BITS_DEFAULT,
    ) -> None:
        """Know no pack yet."""
        if not 0 <= sample_bits <= SAMPLE_BITS_MAX:
            raise exception.InvalidError(f"{sample_bits} bits are not from 0 to {SAMPLE_BITS_MAX}")
        self._load = load
        self._limits = limits or Limits()
        self._mask = (1 << sample_bits) - 1
        self._samples = _Samples(self._limits.samples)
        self._numbers: collections.OrderedDict[bytes, int] = collections.OrderedDict()
        """Packs by id, the one that was used longest ago first."""
        self._names: dict[int, bytes] = {}
        self._free_numbers: list[int] = []
        self._tables: collections.OrderedDict[bytes, frozenset[bytes]] = collections.OrderedDict()
        self.tables_read = 0
        """Packs whose digests were asked for."""

    def __len__(self) -> int:
        """Return the number of packs that samples may lead to."""
        return len(self._numbers)

    @property
    def sample_memory_bytes(self) -> int:
        """Bytes of memory of the samples, however many there are."""
        return self._samples.memory_bytes

    def add_pack(self, pack: bytes, digests: Iterable[bytes]) -> None:
        """Remember the samples of a pack.

        Of several packs with a digest the one with the smallest id counts, in whichever order they
        come: so every index leads to the same one.
        """
        number = self._number_of(pack)
        for digest in filter(self._is_sample, digests):
            known = self._names.get(self._samples.find(digest))
            if known is None or pack < known:
                self._samples.put(digest, number)

    def forget_pack(self, pack: bytes) -> None:
        """Let a pack no longer be found."""
        number = self._numbers.pop(pack, None)
        if number is not None:
            del self._names[number]
            self._free_numbers.append(number)
        self._tables.pop(pack, None)

    def find(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return in which pack each digest is, of those that are found.

        All digests at once: each sample among them leads to a pack for its neighbours too. Of
        several packs the one with the smallest id is returned.
        """
        found: dict[bytes, bytes] = {}
        for pack in self._candidates(digests):
            table = self._table_of(pack)
            for digest in digests if table else ():
                if digest in table:
                    found[digest] = min(pack, found.get(digest, pack))
        return found

    def _candidates(self, digests: Sequence[bytes]) -> list[bytes]:
        """Return the packs that samples lead to, the one that most lead to first."""
        votes: collections.Counter[bytes] = collections.Counter()
        for digest in filter(self._is_sample, digests):
            pack = self._names.get(self._samples.find(digest))
            if pack is None:
                self._samples.forget(digest)
            else:
                votes[pack] += 1
        return [pack for pack, _ in votes.most_common(self._limits.tables)]

    def _is_sample(self, digest: bytes) -> bool:
        return int.from_bytes(digest[-4:], "little") & self._mask == 0

    def _table_of(self, pack: bytes) -> frozenset[bytes]:
        """Return the digests of a pack; none of one that is not to be relied on."""
        table = self._tables.get(pack)
        if table is None:
            self.tables_read += 1
            loaded = self._load(pack)
            if loaded is None:
                self.forget_pack(pack)
                return frozenset()
            table = self._tables[pack] = frozenset(loaded)
            while len(self._tables) > self._limits.tables:
                self._tables.popitem(last=False)
        self._tables.move_to_end(pack)
        if pack in self._numbers:
            self._numbers.move_to_end(pack)
        return table

    def _number_of(self, pack: bytes) -> int:
        number = self._numbers.get(pack)
        if number is None:
            if len(self._numbers) >= self._limits.packs:
                # Samples of the pack that makes room lead to this one now, where they are not.
                oldest, number = self._numbers.popitem(last=False)
                self._tables.pop(oldest, None)
            elif self._free_numbers:
                number = self._free_numbers.pop()
            else:
                number = len(self._numbers) + 1
            self._numbers[pack] = number
            self._names[number] = pack
        self._numbers.move_to_end(pack)
        return number
