"""Merging a version at the origin's side: one delta over its base, fewer jumps, no duplicates.

The differential delta of a version, all that is unlike its base, is written as one manifest over
the base, however long the chain was. On the way chunks that another host has stored, too, are taken
from there, and the chunk groups that alpha chooses are stored anew. All is of the same content,
and done in the background: a host sends incremental deltas only.

Source: CloudVS, §3.3 (tunable delta storage, at the storage node) and §3.9 (duplicates of several
hosts); ACStor, §3.7.1 (merging a tree that is deeper than 3).
"""

import dataclasses
from collections.abc import Callable, Hashable, Mapping

from acstor import exception
from acstor.repository.disk_manifest import PagedManifest
from acstor.repository.versions import delta_levels, delta_manifest
from acstor.repository.versions.captures import Stored
from acstor.repository.versions.delta_capture import random_salt
from acstor.repository.versions.delta_manifest import DeltaDisk, PlacedRecord, Said
from acstor.repository.versions.known_chunks import KnownChunks
from acstor.repository.versions.merges import Merged
from acstor.repository.versions.record import PACKS_MAX, VersionRecord
from acstor.repository.versions.store import VersionStore
from acstor.repository.volumes.record import Pending
from acstor.versions import alpha
from acstor.versions.alpha import GROUP_CHUNKS_DEFAULT, DeltaChunk, Regrouping, TieBreak
from acstor.versions.repacking import Repacker
from acstor.versions.sampled_index import SampledIndex

ANCESTORS_MAX = 256
"""Most versions before one that are asked which packs are theirs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of merges."""

    alpha: float = 0.0
    """Share of the chunk groups that are stored as a differential delta, 0 to 1."""
    group_chunks: int = GROUP_CHUNKS_DEFAULT
    tie_break: TieBreak = TieBreak.DISK_ORDER
    pack_size: int = 16 << 20
    """Bytes at which a pack is closed."""


@dataclasses.dataclass(frozen=True, slots=True)
class MergeReport:
    """Report of a merge."""

    depth_before: int
    depth_after: int
    groups: int
    """Chunk groups of the differential delta."""
    chunks_anew: int
    bytes_anew: int
    """Bytes that storing chunks anew took."""
    duplicates: int
    """Chunks that are taken from what other hosts have stored."""
    reads_before: int
    """Non-sequential reads of a restore."""
    reads_after: int


class Merger:
    """Merges one version after the other.

    :param duplicates: index of packs of other hosts; None: none are looked for.
    :param check_room: raises where there is no room for so many bytes.
    :param check: called between steps; ends the merge by raising, for example where the origin has
        better things to do.
    """

    def __init__(
        self,
        store: VersionStore,
        settings: Settings,
        duplicates: SampledIndex | None = None,
        check_room: Callable[[int], None] = lambda size: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep what to merge with."""
        self._store = store
        self._repository = store.repository
        self._origin = store.repository.origin
        self._settings = settings
        self._duplicates = duplicates
        self._check_room = check_room
        self._check = check

    def merge(self, version_id: str) -> MergeReport | None:
        """Merge a version.

        :returns: None where there is nothing to merge: its disk is of zeros, has a manifest that is
            whole or of version 1, or log objects over it.
        :raises NotFoundError: when there is no such version.
        :raises ConflictError: when it is no restore point, or somebody changed it meanwhile; when a
            collection has what its new manifest refers to: try again.
        :raises ExhaustedError: when there is no room.
        """
        record = self._store.get(version_id).record
        if not record.is_restorable:
            raise exception.ConflictError(f"version {version_id} is {record.state.value}")
        manifest = record.manifest and self._repository.load_manifest(record.manifest)
        is_delta = isinstance(manifest, PagedManifest) and len(manifest.names) > 1
        if not isinstance(manifest, PagedManifest) or not is_delta or record.logs:
            return None
        return _Merge(self, version_id, record, manifest).run()


class _Merge:
    """One merge."""

    def __init__(
        self, merger: Merger, version_id: str, record: VersionRecord, manifest: PagedManifest
    ) -> None:
        self._merger = merger
        self._version_id = version_id
        self._record = record
        self._manifest = manifest
        self._pending: Pending | None = None
        self._packs: list[str] = []

    def run(self) -> MergeReport:
        merger, settings = self._merger, self._merger._settings
        base = merger._repository.load_manifest(self._manifest.names[-1])
        if not isinstance(base, PagedManifest):
            raise exception.InternalError(f"manifest {base.digest} is below a delta, and no base")
        before = self._differential(base)
        merger._check()
        found = self._deduplicated(before)
        merger._check()
        chosen = self._regrouped(found)
        repacker = Repacker(
            merger._origin,
            self._manifest.chunk_size,
            settings.pack_size,
            self._announce,
            merger._check_room,
        )
        anew = [(chunk.index, _data(found, chunk.index)) for chunk in chosen.anew]
        after: dict[int, Said] = {**found, **repacker.repack(anew, merger._check)}
        depth = self._install(base, before, after)
        return MergeReport(
            depth_before=len(self._manifest.names),
            depth_after=depth,
            groups=chosen.groups,
            chunks_anew=len(chosen.anew),
            bytes_anew=repacker.bytes_stored,
            duplicates=sum(before[index] != found[index] for index in before),
            reads_before=chosen.reads_before,
            reads_after=chosen.reads_after,
        )

    def _differential(self, base: PagedManifest) -> dict[int, Said]:
        """Return what the version has otherwise than its base."""
        origin = self._merger._origin
        chain = delta_levels.chain_of(origin, self._manifest)
        said = delta_levels.take_in(origin, {}, chain[:-1])
        said = delta_levels.without_idle_zeros(said, base)
        return {index: chunk for index, chunk in said.items() if not _is_in(base, index, chunk)}

    def _deduplicated(self, said: Mapping[int, Said]) -> dict[int, Said]:
        """Return the same with chunks of other hosts' packs where these have them, too.

        The pack with the smaller id counts: so two versions with the same chunks do not end up with
        each other's.
        """
        index, origin = self._merger._duplicates, self._merger._origin
        own = {bytes.fromhex(pack) for pack in self._record.packs}
        chunks = {place: chunk for place, chunk in said.items() if chunk and chunk.pack.id in own}
        if index is None or not chunks:
            return dict(said)
        places = index.find(list({chunk.digest for chunk in chunks.values()}))
        known = KnownChunks(origin, self._manifest.chunk_size)
        known.add_packs(pack for pack in places.values() if pack not in own)
        result = dict(said)
        for place, chunk in chunks.items():
            other = known.find(chunk.digest)
            if other is not None and other.chunk.pack.id < chunk.pack.id:
                result[place] = other.chunk
        return result

    def _regrouped(self, said: Mapping[int, Said]) -> Regrouping[Hashable]:
        """Return which chunks are to be stored anew."""
        settings, homes = self._merger._settings, self._homes()
        chunks = [
            DeltaChunk(index, homes.get(chunk.pack.id, chunk.pack.id), chunk.stored_size)
            for index, chunk in sorted(said.items())
            if chunk is not None
        ]
        return alpha.regroup(
            chunks, self._version_id, settings.alpha, settings.group_chunks, settings.tie_break
        )

    def _homes(self) -> dict[bytes, Hashable]:
        """Return the version that each pack was stored for, of this one and those before it.

        A pack of which that is not known is a version by itself.
        """
        homes: dict[bytes, Hashable] = {}
        version_id: str | None = self._version_id
        record: VersionRecord | None = self._record
        for _ in range(ANCESTORS_MAX):
            if record is None or version_id is None:
                break
            for pack in record.packs:
                homes.setdefault(bytes.fromhex(pack), version_id)
            version_id = record.parent
            parent = self._merger._store.find(version_id) if version_id else None
            record = None if parent is None else parent.record
        return homes

    def _announce(self, pack: bytes) -> None:
        self._packs.append(pack.hex())
        self._pending = self._merger._store.announce_merge(
            self._version_id, self._manifest.digest, self._pending, self._packs
        )

    def _install(
        self, base: PagedManifest, before: Mapping[int, Said], after: Mapping[int, Said]
    ) -> int:
        """Write, store, claim and install the manifest; return its depth."""
        if _digests(before) != _digests(after):
            raise exception.InternalError(f"a merge of version {self._version_id} changed it")
        store, is_flat = self._merger._store, len(self._manifest.names) == 2
        name = self._manifest.digest
        if before != after or not is_flat:
            name = self._store_manifest(base, after)
        used = {chunk.pack.id.hex() for chunk in after.values() if chunk is not None}
        own = [pack for pack in (*self._record.packs, *self._packs) if pack in used]
        merged = Merged(name, tuple(own[:PACKS_MAX]), self._merger._settings.alpha)
        store.install_merge(self._version_id, self._manifest.digest, self._pending, merged)
        return 2

    def _store_manifest(self, base: PagedManifest, said: Mapping[int, Said]) -> str:
        store, origin = self._merger._store, self._merger._origin
        disk = DeltaDisk(
            self._manifest.disk_id, self._manifest.size_bytes, base.chunk_size, base.digest, 1
        )
        name, content = delta_manifest.write(disk, said, random_salt())
        delta_manifest.check(name, content, base, said)
        self._pending = store.announce_merge(
            self._version_id, self._manifest.digest, self._pending, self._packs, name
        )
        delta_manifest.store(origin, name, content)
        lost = store.find_lost(Stored(name))
        if lost:
            raise exception.ConflictError(
                f"garbage collection has {len(lost)} objects that version {self._version_id} was "
                "to refer to",
                hint="merge it again later",
            )
        return name


def _data(said: Mapping[int, Said], index: int) -> PlacedRecord:
    chunk = said[index]
    if chunk is None:
        raise exception.InternalError(f"chunk {index} is zero, and is not stored anew")
    return chunk


def _is_in(base: PagedManifest, index: int, chunk: Said) -> bool:
    """Return whether the base has the same content at a place."""
    entry = base.entry(index) if chunk and index < base.chunk_count else None
    return entry is not None and chunk is not None and entry.digest == chunk.digest


def _digests(said: Mapping[int, Said]) -> dict[int, bytes | None]:
    return {index: chunk and chunk.digest for index, chunk in said.items()}
