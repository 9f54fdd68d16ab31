"""Registering an image: from a file to packs, a manifest and a record.

Killed at any moment it leaves packs that the next run finds again through their digests, and so
does not store twice; only the ref, which is written last, makes the image exist.
"""

import concurrent.futures
import dataclasses
import datetime
import os
import secrets
import time
from collections.abc import Callable

from acstor import exception
from acstor.origin import base as origin_base
from acstor.repository import layout, pack_cache, pack_reader
from acstor.repository.checksum import Checksum, ChecksumThread
from acstor.repository.chunk_indexes import ChunkIndex
from acstor.repository.disk_formats import (
    SALT_BITS,
    DiskFiller,
    StoredDisk,
    format_of_disks,
)
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.gc import claim
from acstor.repository.images import image_record, revocation
from acstor.repository.images.record_writer import RecordWriter, UnsignedRecords
from acstor.repository.origin_reserve import OriginReserve
from acstor.repository.pack_filler import InlineExecutor, PackStorer
from acstor.repository.progress import Progress
from acstor.repository.repository import Image, Repository
from acstor.repository.source import base as source_base
from acstor.repository.source.hashed import HashedSource

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
    return secrets.randbits(SALT_BITS)


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
        self._format = format_of_disks(repository)
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
        :raises InvalidError: when the image is revoked.
        :raises UnsupportedError: when the repository is of a version without scopes.
        :raises ExhaustedError: when there is no room but what is left to volumes.
        :raises UnavailableError: when the origin fails, or garbage collection keeps deleting what
            this stores because its grace period is far too short.
        """
        started = time.monotonic()
        report = Report(layout.canonical_image_id(request.image_id))
        revocation.check_not_revoked(self._origin, report.image_id)
        self._check_size(request)
        request, watch = _watched(request)
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
        chunks_max, size_max = self._format.chunks_max, self._format.size_max
        if -(-size_bytes // chunk_size) > chunks_max or size_bytes > size_max:
            raise exception.DiskTooLargeError(
                f"the disk of image {request.image_id} has {size_bytes} bytes, more than the "
                f"{chunks_max} chunks of {chunk_size} bytes, or the {size_max} bytes, that a "
                "manifest can have"
            )

    def _register(
        self,
        request: Request,
        report: Report,
        watch: ChecksumThread | HashedSource | None,
        cache: pack_cache.PackCache | None,
    ) -> None:
        existing = self._repository.find_image(report.image_id)
        if existing:
            request = dataclasses.replace(request, dedup_scope=existing.record.dedup_scope)
        self._repository.check_scope_allowed(request.dedup_scope)
        expected = self._load_existing(existing)
        if existing:
            report.status = "repaired"  # unless it turns out to be whole
        lost = self._claim(expected) if expected else set()
        index = self._load_index(cache)
        for report.rounds in range(1, ROUNDS_MAX + 1):
            for name in lost:
                index.forget_pack(name)
            stored = self._store(request, report, index, expected, cache)
            manifest = stored.manifest
            request.source.check_unchanged()
            if watch:
                watch.check()
            if existing:
                self._check_content(existing.id, stored, existing.record.content)
                if expected and not self._claim(expected):
                    self._keep(request, report, expected, stored, existing)
                    return
            self._check()
            stored.store_manifest(self._origin)
            lost = self._claim(manifest)
            if lost:
                continue
            self._check()
            revocation.check_not_revoked(self._origin, report.image_id)
            existing = self._publish(request, report, manifest, existing)
            expected = manifest
            lost = self._claim(manifest)
            if not lost:
                return
        raise exception.UnavailableError(
            f"garbage collection deleted chunks of image {report.image_id} {ROUNDS_MAX} times "
            "while it was being registered",
            hint="raise [gc] grace above the time that a registration takes, then register again",
        )

    def _load_index(self, cache: pack_cache.PackCache | None) -> ChunkIndex:
        index = self._format.new_index(self._repository.chunk_size)
        pack_reader.load_index(self._origin, index, cache)
        return index

    def _load_existing(self, existing: Image | None) -> DiskManifest | None:
        if existing is None:
            return None
        try:
            manifest = self._repository.load_manifest(existing.record.manifest)
            manifest.check()
            return manifest
        except (exception.NotFoundError, exception.CorruptError):
            return None  # It is then repaired.

    def _claim(self, manifest: DiskManifest) -> set[bytes]:
        return claim.claim(self._origin, manifest, is_of_hosts=False)

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
        index: ChunkIndex,
        expected: DiskManifest | None,
        cache: pack_cache.PackCache | None,
    ) -> StoredDisk:
        """Store the chunks that the index does not have."""

        def on_stored(pack: bytes, header: bytes, table: bytes, size: int) -> None:
            report.packs += 1
            report.bytes_stored += size
            if cache:
                cache.append(pack, header, table)

        workers = self._settings.workers
        self._progress.begin("registering", request.source.size_bytes)
        executor: concurrent.futures.Executor = (
            concurrent.futures.ThreadPoolExecutor(workers, "acstor-store")
            if workers
            else InlineExecutor()
        )
        with executor:
            storer = PackStorer(self._origin, executor, workers, on_stored, self._reserve.check)
            filler = self._format.new_filler(index, self._settings.pack_size, storer)
            try:
                self._fill(request, filler, expected)
                stored = filler.finish(report.image_id, request.source.size_bytes, random_salt())
            except BaseException:
                storer.abandon()
                raise
        report.manifest = stored.manifest.digest
        report.size_bytes = request.source.size_bytes
        report.chunks = stored.chunks
        report.zero = stored.zero
        report.new += stored.new
        report.unique = stored.unique
        report.duplicate = max(0, report.chunks - report.zero - report.new)
        return stored

    def _fill(
        self,
        request: Request,
        filler: DiskFiller,
        expected: DiskManifest | None,
    ) -> None:
        """Take every chunk of the image, as long as it is as expected."""
        source, chunk_size = request.source, self._repository.chunk_size
        grid = source_base.on_chunk_grid(source.extents(), chunk_size, source.size_bytes)
        for extent in grid:
            self._check()
            if extent.is_zero:
                first, end = extent.start // chunk_size, extent.end // chunk_size
                if expected and expected.has_data(first, end):
                    raise _refused_as_different(request.image_id)
                filler.push_zeros(end - first)
                self._progress.advance(extent.end - extent.start)
                continue
            position = extent.start
            while position < extent.end:
                count = min(filler.window_chunks, (extent.end - position) // chunk_size)
                window = filler.window(count)
                scan = source.scan(position, window, chunk_size, request.dedup_scope)
                if expected and not expected.is_as_scanned(position // chunk_size, scan):
                    raise _refused_as_different(request.image_id)
                filler.take(scan, window)
                position += count * chunk_size
                self._progress.advance(count * chunk_size)
                self._check()

    def _check_content(self, image_id: str, stored: StoredDisk, name: str) -> None:
        """Refuse another content than the one of that name.

        :raises UnavailableError: when the repository was upgraded since it was opened: the name may
            be one that manifests of the former version do not have.
        """
        if stored.has_content(name):
            return
        if Repository.open(self._origin).format != self._repository.format:
            raise exception.UnavailableError(
                f"the repository was upgraded while image {image_id} was being registered",
                hint="register it again",
            )
        raise _refused_as_different(image_id)

    def _keep(
        self,
        request: Request,
        report: Report,
        manifest: DiskManifest,
        stored: StoredDisk,
        existing: Image,
    ) -> None:
        """Leave an image as it is, but for its record where that is to be signed."""
        report.status = "already registered"
        report.manifest = manifest.digest
        if self._writer.is_current(self._repository, report.image_id, existing.content):
            return
        # Whoever wrote that record: each digest was compared, and the size is part of this.
        self._check_content(report.image_id, stored, manifest.content_name())
        if manifest.disk_id != report.image_id:
            raise _refused_as_different(report.image_id)
        self._check()
        self._publish(request, report, manifest, existing)
        report.status = "signed"

    def _publish(
        self,
        request: Request,
        report: Report,
        manifest: DiskManifest,
        existing: Image | None,
    ) -> Image:
        record = image_record.ImageRecord(
            manifest=manifest.digest,
            content=manifest.content_name(),
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


def _watched(request: Request) -> tuple[Request, ChecksumThread | HashedSource | None]:
    """Return the request with a source that is watched, and what knows its checksum then.

    The checksum is verified where one is declared and the source has something that it is of.
    """
    source, declared = request.source, request.checksum
    if declared is None:
        return request, None
    if source.file is not None:
        return request, ChecksumThread(source.file, declared)
    if source.content_bytes is None:
        return request, None
    hashed = HashedSource(source, source.content_bytes, declared)
    return dataclasses.replace(request, source=hashed), hashed


def _refused_as_different(image_id: str) -> exception.ImageRefusedError:
    return exception.ImageRefusedError(
        f"image {image_id} is registered already, with other content",
        hint="images never change: register the file under a new id, or remove the image first",
    )
