"""Objects that members owe to each other, by pair and by disk."""

import threading
from collections.abc import Mapping, Sequence

from acstor.origin.replicated.placement import Placement
from acstor.origin.replicated.sync.change_log import Change
from acstor.origin.replicated.sync.pairs import Demand, Pair

_MANIFESTS = "manifests/"
"""Folder of what names other objects."""
COMPARED_DISK = ""
"""Name of the disk of what a comparison of listings found: keys do not say it."""


class Backlog:
    """D(i, j) of flexStore (§III-C), and the index by disk (§IV-C).

    :param placement: says which members shall have an object.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._lock = threading.Lock()
        self._owed: dict[Pair, dict[str, dict[str, int]]] = {}
        self._disks: dict[tuple[Pair, str], str] = {}
        """Disk of each object that is owed, so that none counts twice."""
        self._deferred: set[tuple[Pair, str]] = set()

    def add(self, source: str, disk: str, change: Change) -> None:
        """Note that a member has an object, and owes it to the others that shall have it.

        What one member decides is owed by that one alone: nothing is ever copied to where it is
        decided, as the slot of a log may be free there, and occupied by its owner next.
        """
        placed = self._placement.place(change.key)
        if placed.is_decided and source != placed.members[0]:
            return
        with self._lock:
            for target in placed.members:
                pair = Pair(source, target)
                former = self._disks.get((pair, change.key))
                if target == source or (former is not None and disk == COMPARED_DISK):
                    continue
                self._remove(pair, change.key)
                self._disks[pair, change.key] = disk
                self._owed.setdefault(pair, {}).setdefault(disk, {})[change.key] = change.size

    def settle(self, pair: Pair, key: str) -> None:
        """Note that an object is owed no more."""
        with self._lock:
            self._remove(pair, key)
            self._deferred.discard((pair, key))

    def _remove(self, pair: Pair, key: str) -> None:
        disk = self._disks.pop((pair, key), None)
        if disk is not None:
            disks = self._owed[pair]
            del disks[disk][key]
            if not disks[disk]:
                del disks[disk]

    def defer(self, pair: Pair, key: str) -> None:
        """Keep an object that cannot be copied from taking a share; it stays owed."""
        with self._lock:
            self._deferred.add((pair, key))

    def retry(self) -> None:
        """Have all that was deferred tried again."""
        with self._lock:
            self._deferred.clear()

    @property
    def total_bytes(self) -> int:
        """Bytes that are owed in all pairs, deferred ones included."""
        with self._lock:
            return sum(
                size
                for disks in self._owed.values()
                for objects in disks.values()
                for size in objects.values()
            )

    def owes_disk(self, disk: str) -> bool:
        """Return whether any member owes something of a disk."""
        with self._lock:
            return any(disk in disks for disks in self._owed.values())

    def owes(self, pair: Pair, key: str) -> bool:
        """Return whether an object is owed."""
        with self._lock:
            return (pair, key) in self._disks

    def owed_to(self, target: str, folders: tuple[str, ...] = ("",)) -> int:
        """Return the number of objects that are owed to a member, without what was deferred.

        :param folders: of which objects count.
        """
        with self._lock:
            return sum(
                (pair, key) not in self._deferred
                for pair, disks in self._owed.items()
                if pair.target == target
                for objects in disks.values()
                for key in objects
                if key.startswith(folders)
            )

    def deferred_of(self, target: str) -> Sequence[str]:
        """Return the keys of what is owed to a member and cannot be copied, in their order."""
        with self._lock:
            return sorted({key for pair, key in self._deferred if pair.target == target})

    def size_bytes(self, pair: Pair, disk: str | None = None) -> int:
        """Return the bytes that one member owes to another one, of one disk or of all."""
        with self._lock:
            disks = self._owed.get(pair, {})
            wanted = disks.values() if disk is None else [disks.get(disk, {})]
            return sum(size for objects in wanted for size in objects.values())

    def demands(self, needed: Mapping[str, str]) -> list[Demand]:
        """Return what is owed in each pair, without what was deferred.

        :param needed: disks that are about to go to a member, with that member.
        """
        with self._lock:
            found = []
            for pair in self._owed:
                changes = self._ready(pair, needed)
                disks = {disk for disk, _ in changes}
                is_needed = any(needed.get(disk) == pair.target for disk in disks)
                if changes:
                    size = sum(change.size for _, change in changes)
                    found.append(Demand(pair, max(1, size), is_needed))
            return found

    def objects(self, pair: Pair, needed: Mapping[str, str]) -> Sequence[Change]:
        """Return what is owed in a pair, of disks that are about to go there first.

        Those of one disk by their keys, which for a log is the order of its objects: what the
        target has of it is a beginning, and counts if the source is lost. Manifests come last: who
        finds one there finds what it names.
        """
        with self._lock:
            return [change for _, change in self._ready(pair, needed)]

    def _ready(self, pair: Pair, needed: Mapping[str, str]) -> Sequence[tuple[str, Change]]:
        disks = self._owed.get(pair, {})
        order = sorted(disks, key=lambda disk: (needed.get(disk) != pair.target, disk))
        return [
            (disk, Change(key, size))
            for disk in order
            for key, size in sorted(disks[disk].items(), key=_rank)
            if (pair, key) not in self._deferred
        ]


def _rank(one: tuple[str, int]) -> tuple[bool, str]:
    key, _ = one
    return key.startswith(_MANIFESTS), key
