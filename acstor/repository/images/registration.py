"""Registering an image: from a file to packs, a manifest and a record.

Killed at any moment it leaves packs that the next run finds again through their digests, and so
does not store twice; only the ref, which is written last, makes the image exist.
"""

import concurrent.futures
import dataclasses
import datetime
import os
import secrets
import struct
import time
from collections.abc import Callable

from acstor import exception, native
from acstor.origin import base as origin_base
from acstor.repository import layout, pack_cache, pack_reader
from acstor.repository.checksum import Checksum, ChecksumThread
from acstor.repository.gc import claim
from acstor.repository.images import image_record
from acstor.repository.images.record_writer import RecordWriter, UnsignedRecords
from acstor.repository.origin_reserve import OriginReserve
from acstor.repository.pack_filler import InlineExecutor, PackFiller
from acstor.repository.progress import Progress
from acstor.repository.repository import Image, Repository
from acstor.repository.source import base as source_base

ROUNDS_MAX = 5
"""Attempts at storing chunks again that garbage collection took."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of registrations."""

    pack_size: int = 64 << 20
    """Bytes at which a pack is closed."""
    workers: int = 2
    """Packs stored at the same time; 0: each in the caller's thread."""
    cache_path: str | None = None
    """Directory of the cache of pack digests; None: none is kept."""
    reserve_percent: int = 0
    """Share of the origin's room that is left to others."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """Request to register an image."""

    image_id: str
    name: str
    source: source_base.ImageSource
    source_format: str
    checksum: Checksum | None = None
    dedup_scope: str | None = None
    """Scope of the names of its chunks, for an image that is not registered yet."""


@dataclasses.dataclass(slots=True)
class Report:
    """Report of a registration."""

    image_id: str
    status: str = "registered"
    """``registered``, ``already registered``, ``repaired`` (its chunks were stored anew), or
    ``signed`` (it was registered, and its record is signed now)."""
    manifest: str = ""
    size_bytes: int = 0
    chunks: int = 0
    unique: int = 0
    """Different chunks of the image, zero chunks left out."""
    zero: int = 0
    duplicate: int = 0
    """Chunks that were not stored because the origin or the image had them already."""
    new: int = 0
    """Chunks stored."""
    packs: int = 0
    """Packs stored."""
    bytes_stored: int = 0
    """Bytes of those packs."""
    rounds: int = 1
    """Passes over the image; more than 1 when garbage collection was faster."""
    seconds: float = 0.0
    megabytes_per_second: float = 0.0
    """Size of the disk, in 10^6 bytes, per second."""


def random_salt() -> int:
    """Return a salt for a new manifest, so that no name is ever used twice (RFD 5)."""
    return secrets.randbits(64)


def content_name(manifest: native.Manifest) -> str:
    """Return the name of a disk state, the same wherever its chunks are stored.

    BLAKE3 of disk size (u64) and chunk size (u32), little-endian, and the digests of all chunks,
    zeros for a zero chunk; hexadecimal.
    """
    sizes = struct.pack("<QI", manifest.size_bytes, manifest.chunk_size)
    return native.digest(sizes + manifest.digests()).hex()


class Registrar:
    """Registers images in one repository.

    :param check: called between windows of the image and before it is published; ends the
        registration by raising, and nothing is then left but packs.
    :param writer: writes the record, by default one without a signature.
    """

    def __init__(
        self,
        repository: Repository,
        settings: Settings,
        progress: Progress | None = None,
        check: Callable[[], None] = lambda: None,
        writer: RecordWriter | None = None,
    ) -> None:
        """Keep what to register with."""
        self._repository = repository
        self._origin: origin_base.Origin = repository.origin
        self._reserve = OriginReserve(repository.origin, settings.reserve_percent)
        self._settings = settings
        self._progress = progress or Progress()
        self._check = check
        self._writer = writer or UnsignedRecords()

    def register(self, request: Request) -> Report:
        """Register an image, or find that it is registered already.

        Chunks of an image that is registered keep their names, whatever scope is asked for.

        :raises ImageRefusedError: when the file was changed meanwhile, has another checksum than
            declared, or the id belongs to an image of other content.
        :raises UnsupportedError: when the repository is of a version without scopes.
        :raises ExhaustedError: when there is no room but what is left to volumes.
        :raises UnavailableError: when the origin fails, or garbage collection keeps deleting what
            this stores because its grace period is far too short.
        """
        started = time.monotonic()
        report = Report(layout.canonical_image_id(request.image_id))
        self._check_size(request)
        watch = None
        if request.checksum and request.source.file:
            watch = ChecksumThread(request.source.file, request.checksum)
        cache = self._open_cache()
        try:
            self._register(request, report, watch, cache)
        finally:
            if cache:
                cache.close()
            if watch:
                watch.close()
        report.seconds = time.monotonic() - started
        report.megabytes_per_second = report.size_bytes / 1e6 / max(report.seconds, 1e-9)
        return report

    def _check_size(self, request: Request) -> None:
        """Refuse, before anything is read, what no manifest can describe."""
        size_bytes, chunk_size = request.source.size_bytes, self._repository.chunk_size
        if -(-size_bytes // chunk_size) > layout.CHUNKS_MAX:
            raise exception.DiskTooLargeError(
                f"the disk of image {request.image_id} has {size_bytes} bytes, more than the "
                f"{layout.CHUNKS_MAX} chunks of {chunk_size} bytes that a manifest can have"
            )

    def _register(
        self,
        request: Request,
        report: Report,
        watch: ChecksumThread | None,
        cache: pack_cache.PackCache | None,
    ) -> None:
        existing = self._repository.find_image(report.image_id)
        if existing:
            request = dataclasses.replace(request, dedup_scope=existing.record.dedup_scope)
        self._repository.check_scope_allowed(request.dedup_scope)
        expected = self._load_existing(existing)
        if existing:
            report.status = "repaired"  # unless it turns out to be whole
        lost = claim.claim(self._origin, expected) if expected else set()
        index = pack_reader.load_index(self._origin, self._repository.chunk_size, cache)
        for report.rounds in range(1, ROUNDS_MAX + 1):
            for name in lost:
                index.forget_pack(name)
            manifest = self._store(request, report, index, expected, cache)
            request.source.check_unchanged()
            if watch:
                watch.check()
            content = content_name(manifest)
            if existing:
                self._check_same(existing, content)
                if expected and not claim.claim(self._origin, expected):
                    self._keep(request, report, expected, content, existing)
                    return
            self._check()
            self._put_manifest(manifest)
            lost = claim.claim(self._origin, manifest)
            if lost:
                continue
            self._check()
            existing = self._publish(request, report, manifest, content, existing)
            expected = manifest
            lost = claim.claim(self._origin, manifest)
            if not lost:
                return
        raise exception.UnavailableError(
            f"garbage collection deleted chunks of image {report.image_id} {ROUNDS_MAX} times "
            "while it was being registered",
            hint="raise [gc] grace above the time that a registration takes, then register again",
        )

    def _load_existing(self, existing: Image | None) -> native.Manifest | None:
        if existing is None:
            return None
        try:
            return self._repository.load_manifest(existing.record.manifest)
        except (exception.NotFoundError, exception.CorruptError):
            return None  # It is then repaired.

    def _open_cache(self) -> pack_cache.PackCache | None:
        if self._settings.cache_path is None:
            return None
        name = f"{self._repository.format.id}.packs"
        path = os.path.join(self._settings.cache_path, name)
        try:
            return pack_cache.PackCache(path, self._repository.chunk_size)
        except OSError as error:
            raise exception.InvalidError(
                f"the cache of pack digests cannot be used: {path}: {error.strerror}",
                hint="correct [registration] cache_path",
            ) from error

    def _store(
        self,
        request: Request,
        report: Report,
        index: native.DigestIndex,
        expected: native.Manifest | None,
        cache: pack_cache.PackCache | None,
    ) -> native.Manifest:
        """Store the chunks that the index does not have; return the manifest of the image."""

        def on_stored(pack: bytes, salt: bytes, digests: bytes, size: int) -> None:
            report.packs += 1
            report.bytes_stored += size
            if cache:
                cache.append(pack, salt, digests)

        workers = self._settings.workers
        builder = native.ImageBuilder(index, expected)
        self._progress.begin("registering", request.source.size_bytes)
        executor: concurrent.futures.Executor = (
            concurrent.futures.ThreadPoolExecutor(workers, "acstor-store")
            if workers
            else InlineExecutor()
        )
        with executor:
            filler = PackFiller(
                self._origin,
                builder,
                self._repository.chunk_size,
                self._settings.pack_size,
                executor,
                workers,
                on_stored,
                self._reserve.check,
            )
            try:
                self._fill(request, builder, filler, report.image_id)
                filler.finish()
            except BaseException:
                filler.abandon()
                raise
        size_bytes = request.source.size_bytes
        manifest = builder.finish(report.image_id, size_bytes, random_salt())
        report.manifest = manifest.digest
        report.size_bytes = size_bytes
        report.chunks = len(builder)
        report.zero = builder.zero_count
        report.new += builder.new_count
        report.unique = builder.unique_count()
        report.duplicate = max(0, report.chunks - report.zero - report.new)
        return manifest

    def _fill(
        self,
        request: Request,
        builder: native.ImageBuilder,
        filler: PackFiller,
        image_id: str,
    ) -> None:
        source, chunk_size = request.source, self._repository.chunk_size
        grid = source_base.on_chunk_grid(source.extents(), chunk_size, source.size_bytes)
        for extent in grid:
            self._check()
            if extent.is_zero:
                builder.push_zeros((extent.end - extent.start) // chunk_size)
                self._progress.advance(extent.end - extent.start)
                continue
            position = extent.start
            while position < extent.end:
                count = min(filler.window_chunks, (extent.end - position) // chunk_size)
                window = filler.window(count)
                scan = source.scan(position, window, chunk_size, request.dedup_scope)
                kept = builder.absorb(scan, window)
                if builder.first_difference is not None:
                    raise _refused_as_different(image_id)
                filler.keep(kept)
                position += count * chunk_size
                self._progress.advance(count * chunk_size)
                self._check()

    def _check_same(self, existing: Image, content: str) -> None:
        if existing.record.content != content:
            raise _refused_as_different(existing.id)

    def _keep(
        self,
        request: Request,
        report: Report,
        manifest: native.Manifest,
        content: str,
        existing: Image,
    ) -> None:
        """Leave an image as it is, but for its record where that is to be signed."""
        report.status = "already registered"
        report.manifest = manifest.digest
        if self._writer.is_current(self._repository, report.image_id, existing.content):
            return
        # Whoever wrote that record: each digest was compared, and the size is part of this.
        if manifest.disk_id != report.image_id or content_name(manifest) != content:
            raise _refused_as_different(report.image_id)
        self._check()
        self._publish(request, report, manifest, content, existing)
        report.status = "signed"

    def _put_manifest(self, manifest: native.Manifest) -> None:
        self._origin.put_if_absent(layout.manifest_key(manifest.digest), [manifest.to_bytes()])

    def _publish(
        self,
        request: Request,
        report: Report,
        manifest: native.Manifest,
        content: str,
        existing: Image | None,
    ) -> Image:
        record = image_record.ImageRecord(
            manifest=manifest.digest,
            content=content,
            name=request.name[: image_record.NAME_LENGTH_MAX],
            size_bytes=manifest.size_bytes,
            chunk_size=manifest.chunk_size,
            chunk_count=manifest.chunk_count,
            unique_count=report.unique,
            zero_count=report.zero,
            source_format=request.source_format,
            registered_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            checksum=str(request.checksum) if request.checksum else None,
            dedup_scope=request.dedup_scope,
        )
        name = layout.image_ref(report.image_id)
        written = self._writer.encode(
            self._repository, report.image_id, record, existing.content if existing else None
        )
        expected = existing.token if existing else None
        with self._repository.image_index.changing(report.image_id):
            token = self._origin.swap_ref(name, expected, written)
        if token is None:
            raise exception.InternalError(f"ref {name} has no token after it was written")
        return Image(report.image_id, record, token, written)


def _refused_as_different(image_id: str) -> exception.ImageRefusedError:
    return exception.ImageRefusedError(
        f"image {image_id} is registered already, with other content",
        hint="images never change: register the file under a new id, or remove the image first",
    )
