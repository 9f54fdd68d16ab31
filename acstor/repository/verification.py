"""Re-reading what the repository holds and comparing it with its digests."""

import concurrent.futures
import dataclasses
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from acstor import exception
from acstor.repository import layout, moved_packs, pack_reader
from acstor.repository.chunk_indexes import ChunkIndexes
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.gc import claim
from acstor.repository.gc.condemnation import State, Tombstones
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository
from acstor.repository.sound_copies import SoundCopies
from acstor.repository.subjects import UNREADABLE, Kind, Part, Subject, Subjects
from acstor.repository.volumes.log_object import LOG_OBJECT_SIZE_MAX, check_log_object
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import DiskState

READERS = 2
"""Packs read at the same time."""
LOGS_MAX = 1 << 20
"""Most log objects of one range that are read: a record that says more is wrong."""


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it should be."""

    what: str
    """Message: what is wrong."""
    image: str | None = None
    """Image that is affected; without one, a volume and the like: an object that none needs."""
    volume: str | None = None
    """Volume that is affected."""
    snapshot: str | None = None
    """Snapshot that is affected."""
    version: str | None = None
    """Version that is affected."""
    part: str | None = None
    """Part of the version: its disk, UEFI variables or virtual TPM."""
    chunk: int | None = None
    """Index of the affected chunk of the disk."""
    pack: str | None = None
    """Id of the pack."""
    offset: int | None = None
    """Offset of the damaged chunk in the pack, bytes."""
    log_object: str | None = None
    """Key of the damaged log object."""


@dataclasses.dataclass(slots=True)
class Report:
    """Report of a verification."""

    images: int = 0
    volumes: int = 0
    snapshots: int = 0
    versions: int = 0
    packs: int = 0
    chunks: int = 0
    """Chunks of packs that were read and digested."""
    log_objects: int = 0
    """Log objects that were read and digested."""
    bytes_read: int = 0
    damages: list[Damage] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    megabytes_per_second: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    """Disk of a subject, its manifest, and the packs of that."""

    disk: DiskState
    manifest: DiskManifest | None
    packs: Sequence[bytes]


class Verifier:
    """Verifies images, or everything, of one repository.

    Volumes, snapshots and versions are in use meanwhile: what is damaged, but no longer needed by
    the time that everything is read, is not reported.
    """

    def __init__(self, repository: Repository, progress: Progress | None = None) -> None:
        """Keep what to verify."""
        self._repository = repository
        self._origin = repository.origin
        self._subjects = Subjects(repository)
        self._progress = progress or Progress()
        self._lock = threading.Lock()
        self._report = Report()
        self._reasons: dict[bytes, str] = {}
        self._unsound: dict[bytes, list[int]] = {}
        """Offsets of the damaged chunks of a pack."""
        self._sound = ChunkIndexes(repository.chunk_size)
        self._copies = SoundCopies(self._origin)

    def verify(self, image_ids: Sequence[str] | None = None) -> Report:
        """Re-read every digest of some images, or of the whole repository.

        :param image_ids: the images; None: all, all volumes, snapshots and versions with their log
            objects, and every pack, also those that nothing needs.
        :raises NotFoundError: when there is no such image.
        :raises UnavailableError: when the origin cannot be read.
        """
        started = time.monotonic()
        self._report = Report()
        self._reasons, self._unsound = {}, {}
        self._sound = ChunkIndexes(self._repository.chunk_size)
        self._copies = SoundCopies(self._origin)
        wanted = (
            list(self._subjects.all())
            if image_ids is None
            else [
                Subject(Kind.IMAGE, self._repository.get_image(image_id).id)
                for image_id in image_ids
            ]
        )
        disks = self._load(wanted)
        packs = {pack for loaded in disks.values() for pack in loaded.packs}
        packs |= self._targets_of(packs)
        needed = frozenset(packs)
        if image_ids is None:
            names = map(layout.name_of, self._origin.list(layout.PACK_PREFIX))
            packs.update(bytes.fromhex(name) for name in names if name)
        self._read_packs(sorted(packs))
        for subject, loaded in disks.items():
            if loaded.manifest is not None:
                self._judge_manifest(subject, loaded.manifest)
        self._judge_logs({subject: loaded.disk for subject, loaded in disks.items()})
        self._judge_unneeded(packs - needed)
        if image_ids is None:
            self._judge_moves()
        report = self._report
        report.seconds = time.monotonic() - started
        report.megabytes_per_second = report.bytes_read / 1e6 / max(report.seconds, 1e-9)
        return report

    def _load(self, wanted: Sequence[Subject]) -> dict[Subject, _Loaded]:
        disks = {}
        counts = Counter(subject.kind for subject in wanted if subject.part is Part.DISK)
        for subject in wanted:
            try:
                found = self._load_one(subject)
            except UNREADABLE as error:
                self._add(subject, error.message)
                continue
            if found is None:
                counts[subject.kind] -= subject.part is Part.DISK
            else:
                disks[subject] = found
        self._report.images = counts[Kind.IMAGE]
        self._report.volumes = counts[Kind.VOLUME]
        self._report.snapshots = counts[Kind.SNAPSHOT]
        self._report.versions = counts[Kind.VERSION]
        return disks

    def _load_one(self, subject: Subject) -> _Loaded | None:
        before: DiskState | None = None
        while True:
            disk = self._subjects.disk_of(subject)
            if disk is None:
                return None
            try:
                manifest = self._subjects.load(disk)
                return _Loaded(disk, manifest, manifest.packs() if manifest else [])
            except exception.NotFoundError:
                # Another manifest was installed between the two reads, or it is really gone.
                if before == disk:
                    raise
                before = disk

    def _add(self, subject: Subject, what: str, **fields: Any) -> None:
        whose: dict[str, Any] = {subject.kind.value: subject.id}
        if subject.kind is Kind.VERSION:
            whose["part"] = subject.part.value
        self._report.damages.append(Damage(what, **whose, **fields))

    def _targets_of(self, packs: set[bytes]) -> set[bytes]:
        """Return the packs that have the chunks of those that a compaction has emptied."""
        targets, reasons = self._copies.targets_of(
            packs, lambda pack: self._origin.exists(layout.pack_key(pack.hex()))
        )
        self._reasons.update(reasons)
        return targets

    def _read_packs(self, packs: Sequence[bytes]) -> None:
        sizes = {}
        for pack in packs:
            try:
                sizes[pack] = self._origin.size(layout.pack_key(pack.hex()))
            except exception.NotFoundError:
                self._reasons.setdefault(pack, "the pack is missing")
        self._progress.begin("verifying", sum(sizes.values()))
        with concurrent.futures.ThreadPoolExecutor(READERS, "acstor-verify") as pool:
            jobs = [pool.submit(self._read_pack, pack, size) for pack, size in sizes.items()]
            try:
                for job in concurrent.futures.as_completed(jobs):
                    job.result()
            except BaseException:
                for job in jobs:
                    job.cancel()
                raise

    def _read_pack(self, pack: bytes, size: int) -> None:
        try:
            found = pack_reader.read_pack(self._origin, pack)
            if size != found.size_bytes:
                raise exception.CorruptError(
                    f"the pack has {size} bytes instead of {found.size_bytes}"
                )
            if found.chunk_size != self._repository.chunk_size:
                raise exception.CorruptError(f"the pack has chunks of {found.chunk_size} bytes")
            unsound = found.find_unsound(self._origin, self._progress.advance)
        except (
            exception.NotFoundError,
            exception.CorruptError,
            exception.UnsupportedError,
        ) as error:
            with self._lock:
                self._reasons[pack] = error.message
            return
        with self._lock:
            self._report.packs += 1
            self._report.chunks += found.chunk_count
            self._report.bytes_read += size
            if unsound:
                self._unsound[pack] = [found.offset_of(position) for position in unsound]
            index = self._sound.of_version(found.version)
            if index.takes(found.header):
                index.add_pack(pack, found.header, found.table, unsound)
        self._copies.add_pack(found, unsound)

    def _judge_manifest(self, subject: Subject, manifest: DiskManifest) -> None:
        try:
            manifest.check()
            unsound = manifest.unsound(self._sound)
        except UNREADABLE as error:
            if self._is_current(subject, manifest):
                self._add(subject, error.message)
            return
        if unsound and not self._is_current(subject, manifest):
            return
        for chunk in unsound:
            entry = manifest.entry(chunk)
            if entry is None or self._copies.has(entry):
                continue
            reason = self._reasons.get(entry.pack, "the content is not what its digest says")
            self._add(subject, reason, chunk=chunk, pack=entry.pack.hex(), offset=entry.offset)

    def _is_current(self, subject: Subject, manifest: DiskManifest) -> bool:
        """Return whether a volume or snapshot still has the manifest that was judged."""
        try:
            disk = self._subjects.disk_of(subject)
        except UNREADABLE:
            return True
        return disk is not None and disk.manifest == manifest.digest

    def _judge_logs(self, disks: Mapping[Subject, DiskState]) -> None:
        """Read the log objects of volumes and snapshots; each once, however many share it."""
        users: defaultdict[str, list[Subject]] = defaultdict(list)
        for subject, disk in disks.items():
            for key in claim.missing_logs(self._origin, disk.logs):
                self._judge_log_object(key, [subject], "the log object is missing")
            for logs in disk.logs:
                for sequence in range(logs.first, min(logs.last, logs.first + LOGS_MAX) + 1):
                    users[logs.key(sequence)].append(subject)
        self._progress.begin("verifying log objects", len(users))
        for key, subjects in users.items():
            try:
                content = self._origin.get(key, LOG_OBJECT_SIZE_MAX)
                self._report.log_objects += 1
                self._report.bytes_read += len(content)
                check_log_object(key, content)
            except exception.NotFoundError:
                pass  # judged above, or folded and collected since
            except (
                exception.CorruptError,
                exception.UnsupportedError,
                exception.InvalidError,
            ) as error:
                self._judge_log_object(key, subjects, error.message)
            self._progress.advance(1)

    def _judge_log_object(self, key: str, subjects: Sequence[Subject], what: str) -> None:
        parsed = layout.parse_log_key(key)
        for subject in subjects:
            try:
                disk = self._subjects.disk_of(subject)
            except UNREADABLE:
                disk = None  # reported already
            if disk is None or parsed is None:
                continue
            volume, epoch, sequence = parsed
            one = LogRange(volume, epoch, sequence, sequence)
            if any(one.intersects(logs) for logs in disk.logs):
                self._add(subject, what, log_object=key)

    def _judge_unneeded(self, packs: set[bytes]) -> None:
        """Report damage of packs that nothing needs: new images would be deduplicated to them.

        A pack that vanished is being collected; that is no damage.
        """
        tombstones = Tombstones(self._origin)
        for pack in sorted(packs):
            name = pack.hex()
            if pack in self._reasons:
                tombstone = tombstones.find(name)
                is_going = tombstone is not None and tombstone.state is State.DELETING
                if not is_going and self._origin.exists(layout.pack_key(name)):
                    self._report.damages.append(Damage(self._reasons[pack], pack=name))
            for offset in self._unsound.get(pack, []):
                what = "the content is not what its digest says"
                self._report.damages.append(Damage(what, pack=name, offset=offset))

    def _judge_moves(self) -> None:
        """Report what says where a pack was moved to and is not readable."""
        for name in list(moved_packs.list_moved(self._origin)):
            try:
                moved_packs.find_moved(self._origin, bytes.fromhex(name))
            except (exception.CorruptError, exception.UnsupportedError) as error:
                self._report.damages.append(Damage(error.message, pack=name))


def damages_by_image(report: Report) -> dict[str, list[Damage]]:
    """Return the damages of each image; those of no image under the empty name."""
    found: defaultdict[str, list[Damage]] = defaultdict(list)
    for damage in report.damages:
        found[damage.image or ""].append(damage)
    return dict(found)
