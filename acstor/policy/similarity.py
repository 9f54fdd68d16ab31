"""Number of chunks that hosts share, estimated from sketches of what they hold.

A sketch has the least k of the 64-bit prefixes of a host's digests, which are as good as random
numbers (bottom-k MinHash). Of the k least hashes of two hosts together, the part that both have
estimates the Jaccard index J of what they hold, without bias, with a standard error of
sqrt(J (1 - J) / k): at k = 256 at most 0.031, and nothing where one holds fewer chunks than k.

Source: A. Broder, On the resemblance and containment of documents (1997); ACStor, section 3.6: a
v-node goes to the host that has "the highest similarity", the proportion of the same chunks.
"""

import collections
import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from acstor.telemetry.host_state_details import SKETCH_HASHES_MAX, ChunkSketch

Sketch = ChunkSketch
RECEIVERS_MAX = 8
"""Receivers that are named for each giver."""
_CANDIDATES_MAX = 32  # receivers that are looked at closely, by how many hashes they share
_HOLDERS_MAX = 64  # receivers of a chunk beyond which it tells none of them from the others
PAIRS_MAX = 512
"""Pairs of one decision."""
SHARE_MIN = 0.01
"""Proportion of shared chunks below which two hosts do not count as similar."""


@dataclass(frozen=True)
class Estimate:
    """Estimate of what two hosts share, from their sketches."""

    jaccard: float
    """Chunks that both hold, of those that either holds."""
    error: float
    """Standard error of it."""
    containment: float
    """Chunks that both hold, of those that the first holds."""


def estimate(first: Sketch, second: Sketch) -> Estimate:
    """Return what two hosts share."""
    is_whole = len(first.hashes) == first.count and len(second.hashes) == second.count
    union = sorted({*first.hashes, *second.hashes})
    # Beyond the shorter of two cut sketches nothing is known of what it was cut from.
    known = [len(each.hashes) for each in (first, second) if len(each.hashes) < each.count]
    size = min([len(union), *known] if not is_whole else [len(union)])
    if not size:
        return Estimate(0.0, 0.0, 0.0)
    both = {*first.hashes} & {*second.hashes}
    jaccard = sum(each in both for each in union[:size]) / size
    error = 0.0 if is_whole else math.sqrt(jaccard * (1 - jaccard) / size)
    shared = jaccard / (1 + jaccard) * (first.count + second.count)
    return Estimate(jaccard, error, min(1.0, shared / first.count) if first.count else 0.0)


def most_similar(
    sketches: Mapping[str, Sketch], givers: Collection[str], receivers: Collection[str]
) -> tuple[tuple[str, str, float], ...]:
    """Return (giver, receiver, proportion of the giver's chunks that the receiver has).

    For each giver at most :data:`RECEIVERS_MAX` receivers, and :data:`PAIRS_MAX` of all, the most
    similar first: every agent reads them with the decision. Chunks that very many receivers hold
    tell none of them from the others and are not looked at to find candidates.
    """
    holders: dict[int, list[str]] = collections.defaultdict(list)
    for name in sorted(name for name in receivers if name in sketches):
        for each in sketches[name].hashes:
            holders[each].append(name)
    found: list[tuple[str, str, float]] = []
    for giver in sorted(name for name in givers if name in sketches):
        shared: collections.Counter[str] = collections.Counter()
        for each in sketches[giver].hashes:
            if len(holding := holders.get(each, ())) <= _HOLDERS_MAX:
                shared.update(holding)
        shared.pop(giver, None)
        candidates = heapq.nsmallest(
            _CANDIDATES_MAX, shared, key=lambda name: (-shared[name], name)
        )
        shares = [
            (round(estimate(sketches[giver], sketches[name]).containment, 3), name)
            for name in candidates
        ]
        for share, name in heapq.nlargest(RECEIVERS_MAX, shares):
            if share >= SHARE_MIN:
                found.append((giver, name, share))
    found.sort(key=lambda pair: (-pair[2], pair[0], pair[1]))
    return tuple(found[:PAIRS_MAX])


def sketch_of(hashes: Collection[int], size: int = SKETCH_HASHES_MAX) -> Sketch:
    """Return the sketch of a host that holds chunks with these 64-bit prefixes of digests."""
    different = set(hashes)
    return Sketch(len(different), tuple(heapq.nsmallest(size, sorted(different))))
