"""Kinds of boots of one image, and the order in which each reads: a vote of the last boots.

Source: VMTorrent (mean order of first access over several runs), ReadyBoot (the last boots count).
Differs: boots of unlike guests are not averaged but are kinds of their own; the mean is that of the
middle half of the ranks, so that one boot in ten, whatever it tells, moves nothing.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from acstor.control import rank_list
from acstor.control.rank_list import Order

KINDS_MAX = rank_list.ORDERS_MAX
"""Most kinds of boots of an image."""
BOOTS_MAX = 16
"""Last boots of a kind that are kept, and vote."""
OVERLAP_MIN = 0.6
"""Jaccard index of the chunks of a boot and of a kind from which on it is one of that kind."""
SHARE_MIN = 0.25
"""Least share of the last boots of a kind that read a chunk of its order."""
HOSTS_MIN = 2
"""Hosts that agree on a kind, and on a chunk of it, before other hosts use it."""
LONGEST_FACTOR = 4
"""Length of a boot, in times the median of those that are known, at which it is cut."""
MEDIAN_BOOTS_MIN = 4
"""Boots that are known before a median counts."""
LASTING_REPORTS = 32
"""Boots without one of a kind that hosts agree on, until it gives way to a new kind."""


@dataclasses.dataclass(frozen=True, slots=True)
class Boot:
    """One boot of a guest, as its host told it."""

    host: str
    number: int
    """Number of the boot on its host, which no two have."""
    order: Order
    """Different chunks, in the order of first touch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """Boots that read about the same chunks; the oldest first."""

    boots: tuple[Boot, ...]
    matched: int
    """Number of the report that its last boot came with."""
    total: int
    """Boots of it so far, those included that are not kept."""

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts on which the boots were that are kept."""
        return frozenset(boot.host for boot in self.boots)

    @property
    def is_agreed(self) -> bool:
        """True if hosts agree that guests boot so."""
        return len(self.hosts) >= HOSTS_MIN

    def order(self) -> Order:
        """Return the chunks that the next boot of this kind is expected to read, in their order."""
        votes: dict[int, list[tuple[int, str]]] = {}
        for boot in self.boots:
            for rank, chunk in enumerate(boot.order):
                votes.setdefault(chunk, []).append((rank, boot.host))
        hosts_needed = min(HOSTS_MIN, len(self.hosts))
        ranked = [
            (_middle_mean([rank for rank, _ in found]), chunk)
            for chunk, found in votes.items()
            if len(found) >= SHARE_MIN * len(self.boots)
            and (hosts_needed < HOSTS_MIN or len({host for _, host in found}) >= hosts_needed)
        ]
        return tuple(chunk for _, chunk in sorted(ranked)[: rank_list.CHUNKS_MAX])

    def joined(self, boots: Iterable[Boot], matched: int, total: int) -> "Kind":
        """Return the kind with more boots; of too many those of the host that has most go first."""
        kept = [*self.boots, *boots]
        while len(kept) > BOOTS_MAX:
            counts: dict[str, int] = {}
            for boot in kept:
                counts[boot.host] = counts.get(boot.host, 0) + 1
            most = max(counts.values())
            kept.remove(next(boot for boot in kept if counts[boot.host] == most))
        return Kind(tuple(kept), max(self.matched, matched), self.total + total)


def merged(kinds: Sequence[Kind], boot: Boot, report: int) -> tuple[Kind, ...]:
    """Return the kinds after one more boot.

    A boot is of the kind that it overlaps most, if by :data:`OVERLAP_MIN`, else founds one. Of too
    many kinds the one that was matched least recently goes, those that hosts agree on last.

    :param report: number of the report, greater than all before.
    """
    boot = dataclasses.replace(boot, order=_cut(kinds, boot.order))
    orders = [frozenset(kind.order()) for kind in kinds]
    overlaps = [overlap(boot.order, order) for order in orders]
    best = max(range(len(kinds)), key=lambda at: overlaps[at], default=None)
    if best is None or overlaps[best] < OVERLAP_MIN:
        return _founded(kinds, boot, report)
    joined = kinds[best].joined([boot], report, 1)
    others = [kind for at, kind in enumerate(kinds) if at != best]
    return _united(joined, others)


def used(kinds: Iterable[Kind], *, is_lone: bool) -> tuple[Kind, ...]:
    """Return the kinds that hosts are given, the most recently matched first.

    :param is_lone: whether one host alone has ever reported, so that none can agree with it.
    """
    chosen = [kind for kind in kinds if is_lone or kind.is_agreed]
    return tuple(sorted(chosen, key=lambda kind: -kind.matched))


def overlap(one: Iterable[int], other: Iterable[int]) -> float:
    """Return the Jaccard index of two sets of chunks, 0 to 1."""
    first, second = frozenset(one), frozenset(other)
    either = len(first | second)
    return len(first & second) / either if either else 0.0


def _founded(kinds: Sequence[Kind], boot: Boot, report: int) -> tuple[Kind, ...]:
    kept = list(kinds)
    if len(kept) >= KINDS_MAX:
        oldest = min(kept, key=lambda kind: (kind.is_agreed, kind.matched))
        if oldest.is_agreed and report - oldest.matched <= LASTING_REPORTS:
            # One strange guest is not to end what hosts agree on.
            return tuple(kept)
        kept.remove(oldest)
    return (*kept, Kind((boot,), report, 1))


def _united(kind: Kind, others: Sequence[Kind]) -> tuple[Kind, ...]:
    """Return the kinds with those that have become the same in one."""
    chunks = frozenset(kind.order())
    for at, other in enumerate(others):
        if overlap(chunks, other.order()) >= OVERLAP_MIN:
            rest = [*others[:at], *others[at + 1 :]]
            return _united(other.joined(kind.boots, kind.matched, kind.total), rest)
    return (*others, kind)


def _cut(kinds: Iterable[Kind], order: Order) -> Order:
    """Return the beginning of a boot, as much as boots of the image are long."""
    lengths = [len(boot.order) for kind in kinds for boot in kind.boots]
    if len(lengths) < MEDIAN_BOOTS_MIN:
        return order
    return order[: int(LONGEST_FACTOR * statistics.median(lengths))]


def _middle_mean(ranks: list[int]) -> float:
    """Return the mean of ranks without the lowest and the highest quarter of them."""
    outside = len(ranks) // 4
    return statistics.fmean(sorted(ranks)[outside : len(ranks) - outside])
