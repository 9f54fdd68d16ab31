"""Storing a version's incremental delta: redundancy elimination, packs, a manifest.

Source: CloudVS, §3.2: fixed-size chunks are compared by digest with those of the version before,
and only those that are new are sent; the metadata names all others. Differs: a chunk that is not
what the parent has at its place is also looked for in all packs of the parent and the base, so that
most of what reappears after two versions is not stored twice; and chunks are compressed.
"""

import dataclasses
import secrets
from collections.abc import Callable

from acstor import exception
from acstor.repository.compressed_filler import CompressedPackFiller
from acstor.repository.disk_manifest import DEPTH_MAX, PagedManifest
from acstor.repository.origin_reserve import OriginReserve
from acstor.repository.versions import delta_levels, delta_manifest
from acstor.repository.versions.announcing_storer import open_storer
from acstor.repository.versions.captures import Captures, Stored
from acstor.repository.versions.changed_disk import ChangedDisk, on_chunk_grid
from acstor.repository.versions.delta_chunks import DeltaChunks
from acstor.repository.versions.delta_manifest import DeltaDisk, Said
from acstor.repository.versions.known_chunks import CHUNKS_MAX_DEFAULT, Kinship, KnownChunks

ROUNDS_MAX = 5
"""Attempts at storing chunks again that garbage collection took."""
SALT_SIZE = 16


def random_salt() -> bytes:
    """Return a salt for a new manifest, so that no name is ever used twice (RFD 5)."""
    return secrets.token_bytes(SALT_SIZE)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of captures."""

    pack_size: int = 16 << 20
    """Bytes at which a pack is closed."""
    workers: int = 2
    """Packs stored at the same time; 0: each in the caller's thread."""
    known_chunks_max: int = CHUNKS_MAX_DEFAULT
    """Most chunks of others that are looked through."""
    reserve_percent: int = 0
    """Share of the origin's room that is left to others."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeltaRequest:
    """Request to store a delta."""

    version_id: str
    host: str
    disk: ChangedDisk
    disk_id: str
    """UUID that the manifest names."""
    parent: str
    """Manifest of the version before, or of the base image."""
    dedup_scope: str | None = None
    siblings: tuple[bytes, ...] = ()
    """Packs of versions of other disks of the same base, the most promising ones first."""


class DeltaCapture:
    """Stores one delta after the other, for captures that have begun.

    :param captures: where they have.
    :param known: chunks that are looked for; one object for all disks of one moment, so that what
        they have in common is stored once (§3.5). None: a new one for each.
    :param check: called between windows of the disk; ends the capture by raising.
    """

    def __init__(
        self,
        captures: Captures,
        settings: Settings,
        known: KnownChunks | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep what to store with."""
        self._captures = captures
        self._settings = settings
        self._repository = captures.repository
        self._origin = captures.repository.origin
        self._known = known
        self._check = check
        self._reserve = OriginReserve(self._origin, settings.reserve_percent)

    def store(self, request: DeltaRequest) -> Stored:
        """Store the delta; the caller commits the version.

        :raises UnsupportedError: when the parent has a manifest that no delta can be over.
        :raises ExhaustedError: when there is no room, or too much has changed for a delta.
        :raises FencedError: when the capture was given up meanwhile.
        :raises UnavailableError: when the origin fails, or garbage collection keeps deleting what
            this stores.
        """
        parent = self.load_parent(request.parent)
        if request.disk.size_bytes < parent.size_bytes:
            raise exception.InvalidError(
                f"the disk of version {request.version_id} has {request.disk.size_bytes} bytes, "
                f"fewer than the {parent.size_bytes} of the version before",
                hint="take it without a parent",
            )
        known = self._known or KnownChunks(
            self._origin, self._repository.chunk_size, self._settings.known_chunks_max
        )
        known.add_packs(_by_use(parent))
        known.add_packs(request.siblings, Kinship.SIBLING)
        packs: list[str] = []
        for _ in range(ROUNDS_MAX):
            stored = self._store(request, parent, known, packs)
            lost = self._captures.find_lost(stored)
            if not lost:
                return stored
            for pack in lost:
                known.forget_pack(pack)
        raise exception.UnavailableError(
            f"garbage collection deleted chunks of version {request.version_id} {ROUNDS_MAX} times "
            "while it was being captured",
            hint="raise [gc] grace above the time that a capture takes, then take it again",
        )

    def load_parent(self, digest: str) -> PagedManifest:
        """Return a manifest over which a delta may be written.

        :raises UnsupportedError: when there may be none over it.
        """
        parent = self._repository.load_manifest(digest)
        if not isinstance(parent, PagedManifest):
            raise exception.UnsupportedError(
                f"manifest {digest} is of version 1, over which there are no deltas",
                hint="take the version without a parent, or register its image again under another "
                "id: it is stored in the present form",
            )
        if parent.chunk_size != self._repository.chunk_size or len(parent.names) > DEPTH_MAX:
            raise exception.CorruptError(f"manifest {digest} is not of this repository")
        return parent

    def _store(
        self, request: DeltaRequest, parent: PagedManifest, known: KnownChunks, packs: list[str]
    ) -> Stored:
        """Store packs and manifest; name each before.

        :param packs: names of those that attempts before have stored; new ones are added.
        """
        chunks = DeltaChunks(parent, known)
        self._fill(request, chunks, known, packs)
        request.disk.check_unchanged()
        manifest = self._store_manifest(request, parent, chunks.said(), packs)
        return Stored(manifest, tuple(packs), chunks.counts())

    def _fill(
        self, request: DeltaRequest, chunks: DeltaChunks, known: KnownChunks, packs: list[str]
    ) -> None:
        """Take every chunk of the disk that may have changed."""
        settings, chunk_size = self._settings, self._repository.chunk_size
        fresh: list[tuple[bytes, bytes, bytes]] = []

        def announce(pack: bytes) -> None:
            packs.append(pack.hex())
            self._captures.announce(request.version_id, request.host, packs)

        def on_stored(pack: bytes, header: bytes, table: bytes, size: int) -> None:
            fresh.append((pack, header, table))

        try:
            with open_storer(
                self._origin, settings.workers, on_stored, self._reserve.check, announce
            ) as storer:
                filler = CompressedPackFiller(chunks, chunk_size, settings.pack_size, storer)
                self._take_all(request, chunks, filler)
                filler.finish()
        finally:
            for stored in fresh:
                known.add_stored(*stored)

    def _take_all(
        self, request: DeltaRequest, chunks: DeltaChunks, filler: CompressedPackFiller
    ) -> None:
        disk, chunk_size = request.disk, self._repository.chunk_size
        for extent in on_chunk_grid(disk.extents(), chunk_size, disk.size_bytes):
            self._check()
            if extent.is_zero:
                chunks.push_zeros(extent.start // chunk_size, extent.end // chunk_size)
                continue
            position = extent.start
            while position < extent.end:
                count = min(filler.window_chunks, (extent.end - position) // chunk_size)
                window = filler.window(count)
                scan = disk.scan(position, window, chunk_size, request.dedup_scope)
                chunks.begin_window(position // chunk_size)
                filler.take(scan, window)
                position += count * chunk_size
                self._check()

    def _store_manifest(
        self,
        request: DeltaRequest,
        parent: PagedManifest,
        said: dict[int, Said],
        packs: list[str],
    ) -> str:
        """Write a delta over the parent, or over what lies below it, and store it."""
        chain = delta_levels.chain_of(self._origin, parent)
        count = delta_levels.levels_to_take_in(delta_levels.delta_pages_of(said), chain)
        below = parent
        if count:
            below = self.load_parent(chain[count].name)
            said = delta_levels.take_in(self._origin, said, chain[:count])
            said = delta_levels.without_idle_zeros(said, below)
        disk = DeltaDisk(
            request.disk_id,
            request.disk.size_bytes,
            parent.chunk_size,
            below.digest,
            len(below.names),
        )
        name, content = delta_manifest.write(disk, said, random_salt())
        delta_manifest.check(name, content, below, said)
        self._captures.announce(request.version_id, request.host, packs, name)
        delta_manifest.store(self._origin, name, content)
        return name


def _by_use(manifest: PagedManifest) -> list[bytes]:
    """Return the packs of a manifest, those of which most is used first."""
    uses: dict[bytes, int] = {}
    for pack, _class, _stored, used in manifest.usage():
        uses[pack] = max(uses.get(pack, 0), used)
    return sorted(uses, key=lambda pack: (-uses[pack], pack))
