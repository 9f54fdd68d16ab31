"""Chunks of a delta on their way into packs: compared, found elsewhere, or stored."""

from collections import deque

from acstor import exception, native
from acstor.repository.disk_manifest import PagedManifest
from acstor.repository.pack_reader import DIGEST_SIZE, RECORD_SIZE
from acstor.repository.versions.delta_manifest import PlacedRecord, Said
from acstor.repository.versions.known_chunks import Kinship, KnownChunks, pack_use
from acstor.repository.versions.record import DeltaCounts

CHANGED_CHUNKS_MAX = 1 << 20
"""Most chunks of a delta: 64 GiB of chunks of 64 KiB, in some 350 MiB of memory."""
PACK_CLASS = "image"
"""Class of the packs, which versions and images share."""
_ZERO = bytes(DIGEST_SIZE)


class DeltaChunks:
    """Takes the changed chunks of a disk in their order, as a builder of disks does.

    A chunk is compared with the parent's at its place, then looked up among those that are known,
    and only then put into a pack.

    :param parent: manifest of the version before.
    """

    def __init__(self, parent: PagedManifest, known: KnownChunks) -> None:
        """Take nothing yet."""
        self._parent = parent
        self._known = known
        self._next = 0
        self._digests: dict[int, bytes | None] = {}
        """By index of each chunk that is other than the parent's its digest; None: zero."""
        self._places: dict[bytes, PlacedRecord] = {}
        self._open: deque[bytes] = deque()
        """Digests of new chunks that are in no pack yet, in the order of the packs."""
        self._is_open: set[bytes] = set()
        self._reappeared = 0
        self._stored_bytes = 0
        self._stored_chunks = 0

    def begin_window(self, index: int) -> None:
        """Say which chunk is the first of the scan that comes next."""
        self._next = index

    def push_zeros(self, first: int, end: int) -> None:
        """Take chunks that are zero: those count that the parent has content for."""
        index = first
        while index < end:
            found = self._next_data(index)
            if found is None or found >= end:
                return
            self._add(found, None)
            index = found + 1

    def absorb(self, scan: native.Scan) -> list[int]:
        """Take scanned chunks and return the positions of the new ones, ascending."""
        digests, fresh = scan.digests(), []
        for position in range(len(scan)):
            digest = digests[position * DIGEST_SIZE : (position + 1) * DIGEST_SIZE]
            if self._absorb_one(self._next + position, digest):
                fresh.append(position)
        self._next += len(scan)
        return fresh

    def close_pack(self, pack: bytes, table: native.ChunkRecords) -> None:
        """Note that a pack, which is stored next, has the first of the new chunks."""
        records = table.to_bytes()
        use = pack_use(pack, PACK_CLASS, records)
        for at in range(0, len(records), RECORD_SIZE):
            chunk = PlacedRecord(use, records[at : at + RECORD_SIZE])
            if self._open.popleft() != chunk.digest:
                raise exception.InternalError(
                    f"pack {pack.hex()} has other chunks than it was given"
                )
            self._is_open.discard(chunk.digest)
            self._places[chunk.digest] = chunk
            self._stored_bytes += chunk.stored_size
            self._stored_chunks += 1

    def said(self) -> dict[int, Said]:
        """Return what is other than in the parent, once all packs are closed."""
        if self._open:
            raise exception.InternalError("new chunks of a delta are in no pack")
        return {
            index: None if digest is None else self._places[digest]
            for index, digest in self._digests.items()
        }

    def counts(self) -> DeltaCounts:
        """Return the counts of the delta, once all packs are closed."""
        used = {digest for digest in self._digests.values() if digest is not None}
        all_bytes = sum(self._places[digest].stored_size for digest in used)
        return DeltaCounts(
            changed_chunks=len(self._digests),
            stored_chunks=self._stored_chunks,
            reappeared_chunks=self._reappeared,
            stored_bytes=self._stored_bytes,
            shared_bytes=all_bytes - self._stored_bytes,
        )

    def _absorb_one(self, index: int, digest: bytes) -> bool:
        """Take a chunk; return whether it has to be stored."""
        is_there = index < self._parent.chunk_count
        entry = self._parent.entry(index) if is_there else None
        if digest == _ZERO:
            if entry is not None:
                self._add(index, None)
            return False
        if entry is not None and entry.digest == digest:
            return False
        self._add(index, digest)
        if digest in self._places or digest in self._is_open:
            return False
        known = self._known.find(digest)
        if known is not None:
            self._reappeared += known.kinship is Kinship.ANCESTOR
            self._places[digest] = known.chunk
            return False
        self._open.append(digest)
        self._is_open.add(digest)
        return True

    def _add(self, index: int, digest: bytes | None) -> None:
        if len(self._digests) >= CHANGED_CHUNKS_MAX:
            raise exception.ExhaustedError(
                f"more than {CHANGED_CHUNKS_MAX} chunks of the disk have changed since the version "
                "before",
                hint="take the next version without a parent: it is stored as a whole",
            )
        self._digests[index] = digest

    def _next_data(self, first: int) -> int | None:
        return self._parent.next_data(first) if first < self._parent.chunk_count else None
