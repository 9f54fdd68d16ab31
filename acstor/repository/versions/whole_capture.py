"""Storing what has no version before it: a whole disk, and what is beside a disk.

UEFI variables and the state of a virtual TPM are small disks of their own; a disk without a parent
is a large one. Both are stored as images are, but named by the version's record before.
"""

import dataclasses
from collections.abc import Callable, Iterator

from acstor import exception, native
from acstor.repository.disk_formats import COMPRESSED, SALT_BITS, DiskFiller
from acstor.repository.images.registration import random_salt
from acstor.repository.origin_reserve import OriginReserve
from acstor.repository.source.base import SECTOR_SIZE, Extent
from acstor.repository.versions import changed_disk
from acstor.repository.versions.announcing_storer import open_storer
from acstor.repository.versions.captures import Captures, Stored
from acstor.repository.versions.changed_disk import ChangedDisk
from acstor.repository.versions.record import DeltaCounts

PART_SIZE_MAX = 64 << 20
"""Largest thing beside a disk, bytes: UEFI variables have at most some MiB."""
_SALT_MASK = (1 << SALT_BITS) - 1


class BytesDisk:
    """A small disk in memory, with zeros up to a whole sector.

    :raises InvalidError: when it is empty, or not small.
    """

    def __init__(self, content: bytes) -> None:
        if not 0 < len(content) <= PART_SIZE_MAX:
            raise exception.InvalidError(
                f"what is beside a disk has {len(content)} bytes, and 1 to {PART_SIZE_MAX} may be"
            )
        self._content = content + bytes(-len(content) % SECTOR_SIZE)
        self.size_bytes = len(self._content)

    def extents(self) -> Iterator[Extent]:
        """See :class:`.ChangedDisk`."""
        yield Extent(0, self.size_bytes, is_zero=False)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """See :class:`.ChangedDisk`."""
        part = self._content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        buffer[len(part) :] = bytes(len(buffer) - len(part))
        return native.scan_buffer(buffer, chunk_size, scope)

    def check_unchanged(self) -> None:
        """Do nothing: it is in memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class WholeRequest:
    """Request to store a whole disk."""

    version_id: str
    host: str
    disk: ChangedDisk
    """Disk whose extents cover all of it."""
    disk_id: str
    """UUID that the manifest names."""
    dedup_scope: str | None = None


class WholeCapture:
    """Stores one disk after the other, for captures that have begun.

    Of others nothing is looked for: chunks that come twice on a disk are stored once.
    """

    def __init__(
        self,
        captures: Captures,
        pack_size: int,
        workers: int = 2,
        reserve_percent: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep what to store with."""
        self._captures = captures
        self._repository = captures.repository
        self._origin = captures.repository.origin
        self._pack_size = pack_size
        self._workers = workers
        self._reserve = OriginReserve(self._origin, reserve_percent)
        self._check = check

    def store(self, request: WholeRequest) -> Stored:
        """Store packs and manifest; the caller commits the version, or notes a part of it.

        :raises DiskTooLargeError: when no manifest describes it.
        :raises ExhaustedError: when there is no room.
        :raises FencedError: when the capture was given up meanwhile.
        :raises ConflictError: when garbage collection has deleted what was just stored.
        """
        size_bytes, chunk_size = request.disk.size_bytes, self._repository.chunk_size
        if size_bytes > min(COMPRESSED.size_max, COMPRESSED.chunks_max * chunk_size):
            raise exception.DiskTooLargeError(
                f"the disk of version {request.version_id} has {size_bytes} bytes, more than a "
                "manifest describes"
            )
        packs: list[str] = []
        stored_bytes: list[int] = []

        def announce(pack: bytes) -> None:
            packs.append(pack.hex())
            self._captures.announce(request.version_id, request.host, packs)

        def on_stored(pack: bytes, header: bytes, table: bytes, size: int) -> None:
            stored_bytes.append(size)

        with open_storer(
            self._origin, self._workers, on_stored, self._reserve.check, announce
        ) as storer:
            index = COMPRESSED.new_index(chunk_size)
            filler = COMPRESSED.new_filler(index, self._pack_size, storer)
            self._fill(request, filler)
            disk = filler.finish(request.disk_id, size_bytes, random_salt() & _SALT_MASK)
        request.disk.check_unchanged()
        name = disk.manifest.digest
        self._captures.announce(request.version_id, request.host, packs, name)
        disk.store_manifest(self._origin)
        counts = DeltaCounts(disk.chunks - disk.zero, disk.new, 0, sum(stored_bytes), 0)
        stored = Stored(name, tuple(packs), counts)
        if self._captures.find_lost(stored):
            raise exception.ConflictError(
                f"garbage collection deleted chunks of version {request.version_id} while it was "
                "being captured",
                hint="raise [gc] grace above the time that a capture takes, then take it again",
            )
        return stored

    def _fill(self, request: WholeRequest, filler: DiskFiller) -> None:
        """Take every chunk of the disk."""
        disk, chunk_size = request.disk, self._repository.chunk_size
        covered = 0
        for extent in changed_disk.on_chunk_grid(disk.extents(), chunk_size, disk.size_bytes):
            if extent.start != covered:
                raise exception.InternalError(f"nothing is known of the disk at byte {covered}")
            covered = extent.end
            if extent.is_zero:
                filler.push_zeros((extent.end - extent.start) // chunk_size)
                continue
            position = extent.start
            while position < extent.end:
                self._check()
                count = min(filler.window_chunks, (extent.end - position) // chunk_size)
                window = filler.window(count)
                filler.take(disk.scan(position, window, chunk_size, request.dedup_scope), window)
                position += count * chunk_size
        if covered < disk.size_bytes:
            raise exception.InternalError(f"nothing is known of the disk at byte {covered}")
