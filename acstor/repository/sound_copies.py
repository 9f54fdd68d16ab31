"""Copies of chunks that a compaction has made, as a verification finds them."""

import threading
from collections.abc import Callable, Collection, Sequence

from acstor import exception, native
from acstor.origin import base
from acstor.repository import moved_packs
from acstor.repository.disk_manifest import Entry
from acstor.repository.pack_reader import Pack, StoredPack

_Places = dict[int, tuple[bytes, int, str]]
"""By offset in a pack, digest, stored bytes and codec of a sound chunk."""


class SoundCopies:
    """Copies of the chunks of packs that are gone, as far as they are sound.

    Safe to use from several threads.
    """

    def __init__(self, objects: base.ObjectStore) -> None:
        """Know nothing yet."""
        self._objects = objects
        self._moved: dict[bytes, native.MovedPack] = {}
        self._targets: set[bytes] = set()
        self._lock = threading.Lock()
        self._places: dict[bytes, _Places] = {}

    def targets_of(
        self, packs: Collection[bytes], is_there: Callable[[bytes], bool]
    ) -> tuple[set[bytes], dict[bytes, str]]:
        """Find the packs that have the chunks of those of ``packs`` that are gone.

        :returns: these packs, and by pack the reason for which where it was moved to is unknown.
        """
        found: set[bytes] = set()
        reasons: dict[bytes, str] = {}
        gone = [pack for pack in packs if not is_there(pack)]
        for _ in range(moved_packs.HOPS_MAX):
            targets: set[bytes] = set()
            for pack in gone:
                try:
                    moved = moved_packs.find_moved(self._objects, pack)
                except (exception.CorruptError, exception.UnsupportedError) as error:
                    reasons[pack] = error.message
                    continue
                if moved is not None:
                    self._moved[pack] = moved
                    targets.update(moved.targets())
            found |= targets
            gone = [pack for pack in targets if not is_there(pack)]
        self._targets = found
        return found, reasons

    def add_pack(self, pack: Pack, unsound: Sequence[int]) -> None:
        """Take the sound chunks of a pack that was read, if it has copies."""
        if pack.id not in self._targets or not isinstance(pack, StoredPack):
            return
        damaged = frozenset(unsound)
        places: _Places = {}
        for position in range(pack.chunk_count):
            if position not in damaged:
                digest, offset, size, codec, _ = pack.records.record(position)
                places[offset] = digest, size, codec
        with self._lock:
            self._places[pack.id] = places

    def has(self, entry: Entry) -> bool:
        """Return whether a chunk that a manifest names is sound where it was moved to."""
        pack, offset, size = entry.pack, entry.offset, entry.stored_size
        for _ in range(moved_packs.HOPS_MAX):
            moved = self._moved.get(pack)
            found = None if moved is None else moved.find(offset, size)
            if found is None:
                return False
            pack, offset, size, codec = found
            places = self._places.get(pack)
            if places is not None:
                return places.get(offset) == (entry.digest, size, codec)
        return False
