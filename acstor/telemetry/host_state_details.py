"""Parts of a host state that only the policy service reads: all optional, each checked."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acstor import exception, untrusted_json

SKETCH_HASHES_MAX = 256
"""Hashes of one sketch (bottom-k)."""
PEERS_MAX = 64
"""Peers of whose latency one message tells."""
LATENCY_MAX_MS = 1e7
_COUNT_MAX = (1 << 63) - 1
_HOST = re.compile(r"[a-z0-9][a-z0-9_.-]{0,254}")
_HASH = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class ChunkSketch:
    """Sketch of a host's chunks: the least of the 64-bit prefixes of their digests.

    :raises InvalidError: when it is none.
    """

    count: int
    """Chunks that the host holds."""
    hashes: tuple[int, ...]
    """Ascending; all of them where the host holds no more."""

    def __post_init__(self) -> None:
        hashes = self.hashes
        is_whole = type(self.count) is int and 0 <= self.count <= _COUNT_MAX
        if not is_whole or len(hashes) > min(SKETCH_HASHES_MAX, self.count):
            raise exception.InvalidError(f"sketch of {self.count!r:.30} chunks")
        is_ascending = all(low < high for low, high in itertools.pairwise(hashes))
        if not is_ascending or (hashes and not 0 <= hashes[0] <= hashes[-1] < 1 << 64):
            raise exception.InvalidError("the hashes of a sketch do not ascend")

    def to_message(self) -> dict[str, Any]:
        """Return it as JSON can carry it."""
        return {"count": self.count, "hashes": [f"{each:016x}" for each in self.hashes]}

    @classmethod
    def from_message(cls, message: object) -> "ChunkSketch | None":
        """Return the sketch that a message tells, None where it tells none.

        :raises InvalidError: for anything that is no sketch.
        """
        if message is None:
            return None
        if not isinstance(message, Mapping) or not isinstance(message.get("hashes"), list):
            raise exception.InvalidError("sketch is no object with hashes")
        hashes = message["hashes"]
        if len(hashes) > SKETCH_HASHES_MAX or not all(
            isinstance(each, str) and _HASH.fullmatch(each) for each in hashes
        ):
            raise exception.InvalidError("hashes of a sketch")
        return cls(message.get("count", -1), tuple(int(each, 16) for each in hashes))


@dataclass(frozen=True)
class PeerLatency:
    """Recent latency of fetches from one peer, milliseconds."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class DiskHealth:
    """Health and wear of the chunk store's disk."""

    is_healthy: bool
    wear: float | None = None
    """Part of its life that is over, 0 to 1; None: not known."""


def peers_to_message(peers: Mapping[str, PeerLatency]) -> dict[str, Any]:
    """Return latencies as JSON can carry them."""
    return {
        name: {"p50_ms": round(each.p50_ms, 3), "p99_ms": round(each.p99_ms, 3)}
        for name, each in sorted(peers.items())
    }


def peers_from_message(message: object) -> dict[str, PeerLatency]:
    """Return the latencies that a message tells, none where it tells none.

    :raises InvalidError: for anything else.
    """
    if message is None:
        return {}
    if not isinstance(message, Mapping) or len(message) > PEERS_MAX:
        raise exception.InvalidError("peers is no object of a permitted size")
    found = {}
    for name, fields in message.items():
        is_host = isinstance(name, str) and _HOST.fullmatch(name) is not None
        if not is_host or not isinstance(fields, Mapping):
            raise exception.InvalidError(f"latency of peer {name!r:.50}")
        values = [fields.get("p50_ms"), fields.get("p99_ms")]
        if not all(_is_number(value, LATENCY_MAX_MS) for value in values):
            raise exception.InvalidError(f"latency of peer {name} = {values!r:.50}")
        found[name] = PeerLatency(float(values[0]), float(values[1]))  # type: ignore[arg-type]
    return found


def disk_to_message(disk: DiskHealth | None) -> dict[str, Any] | None:
    """Return the disk's state as JSON can carry it."""
    if disk is None:
        return None
    wear = None if disk.wear is None else round(disk.wear, 3)
    return {"is_healthy": disk.is_healthy, "wear": wear}


def disk_from_message(message: object) -> DiskHealth | None:
    """Return the disk's state that a message tells, None where it tells none.

    :raises InvalidError: for anything else.
    """
    if message is None:
        return None
    if not isinstance(message, Mapping) or not isinstance(message.get("is_healthy"), bool):
        raise exception.InvalidError("disk is no object with is_healthy")
    wear = message.get("wear")
    if wear is not None and not _is_number(wear, 1.0):
        raise exception.InvalidError(f"wear of the disk = {wear!r:.30}")
    return DiskHealth(message["is_healthy"], None if wear is None else float(wear))


def share_from_message(message: Mapping[str, Any], name: str) -> float | None:
    """Return a number from 0 to 1 that a message tells, None where it tells none.

    :raises InvalidError: for anything else.
    """
    value = message.get(name)
    if value is None:
        return None
    if not _is_number(value, 1.0):
        raise exception.InvalidError(f"{name} = {value!r:.30}")
    return float(value)


def _is_number(value: object, highest: float) -> bool:
    return untrusted_json.is_number(value, 0, highest)
