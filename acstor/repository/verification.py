"""Re-reading what the repository holds and comparing it with its digests."""

import concurrent.futures
import dataclasses
import mmap
import threading
import time
from collections import defaultdict
from collections.abc import Sequence

from acstor import dataplane, exception
from acstor.repository import layout, pack_reader
from acstor.repository.condemnation import State, Tombstones
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository

READERS = 2
"""Packs read at the same time."""
READ_SIZE = 8 << 20
"""Bytes read and digested at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it should be."""

    what: str
    """Message: what is wrong."""
    image: str | None = None
    """Image that is affected; None: an object that no image needs."""
    chunk: int | None = None
    """Index of the affected chunk of the image."""
    pack: str | None = None
    """Id of the pack."""
    offset: int | None = None
    """Offset of the damaged chunk in the pack, bytes."""


@dataclasses.dataclass(slots=True)
class Report:
    """What a verification read and found."""

    images: int = 0
    packs: int = 0
    chunks: int = 0
    """Chunks of packs that were read and digested."""
    bytes_read: int = 0
    damages: list[Damage] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    megabytes_per_second: float = 0.0


class Verifier:
    """Verifies images, or everything, of one repository."""

    def __init__(self, repository: Repository, progress: Progress | None = None) -> None:
        """Keep what to verify."""
        self._repository = repository
        self._origin = repository.origin
        self._progress = progress or Progress()
        self._lock = threading.Lock()
        self._report = Report()
        self._reasons: dict[bytes, str] = {}
        self._unsound: dict[bytes, list[int]] = {}
        self._index = dataplane.DigestIndex(repository.chunk_size)

    def verify(self, image_ids: Sequence[str] | None = None) -> Report:
        """Re-read every digest of some images, or of the whole repository.

        :param image_ids: the images; None: all, and every pack, also those that no image needs.
        :raises NotFoundError: when there is no such image.
        :raises UnavailableError: when the origin cannot be read.
        """
        started = time.monotonic()
        self._report = Report()
        self._reasons, self._unsound = {}, {}
        self._index = dataplane.DigestIndex(self._repository.chunk_size)
        wanted = (
            list(self._repository.list_image_ids())
            if image_ids is None
            else [self._repository.get_image(image_id).id for image_id in image_ids]
        )
        manifests = self._load_manifests(wanted)
        packs = {pack for manifest in manifests.values() for pack in manifest.packs()}
        needed = frozenset(packs)
        if image_ids is None:
            names = map(layout.name_of, self._origin.list(layout.PACK_PREFIX))
            packs.update(bytes.fromhex(name) for name in names if name)
        self._read_packs(sorted(packs))
        for image_id, manifest in manifests.items():
            self._judge_image(image_id, manifest)
        self._judge_unneeded(packs - needed)
        report = self._report
        report.seconds = time.monotonic() - started
        report.megabytes_per_second = report.bytes_read / 1e6 / max(report.seconds, 1e-9)
        return report

    def _load_manifests(self, image_ids: Sequence[str]) -> dict[str, dataplane.Manifest]:
        manifests = {}
        for image_id in image_ids:
            try:
                image = self._repository.find_image(image_id)
                if image is not None:
                    manifests[image_id] = self._repository.load_manifest(image.record.manifest)
                    self._report.images += 1
            except (
                exception.NotFoundError,
                exception.CorruptError,
                exception.UnsupportedError,
            ) as error:
                self._report.images += 1
                self._report.damages.append(Damage(what=error.message, image=image_id))
        return manifests

    def _read_packs(self, packs: Sequence[bytes]) -> None:
        sizes = {}
        for pack in packs:
            try:
                sizes[pack] = self._origin.size(layout.pack_key(pack.hex()))
            except exception.NotFoundError:
                self._reasons[pack] = "the pack is missing"
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
            found = pack_reader.read_digests(self._origin, pack)
            expected = pack_reader.DATA_OFFSET + found.chunk_count * (found.chunk_size + 32)
            if size != expected:
                raise exception.CorruptError(f"the pack has {size} bytes instead of {expected}")
            if found.chunk_size != self._repository.chunk_size:
                raise exception.CorruptError(f"the pack has chunks of {found.chunk_size} bytes")
            unsound = self._read_chunks(found)
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
                self._unsound[pack] = unsound
            self._index.add_pack(pack, found.salt, found.digests, unsound)

    def _read_chunks(self, found: pack_reader.PackDigests) -> list[int]:
        """Return the positions of the pack's chunks that are not what their digests say."""
        key = layout.pack_key(found.pack.hex())
        window = max(1, READ_SIZE // found.chunk_size)
        unsound: list[int] = []
        with mmap.mmap(-1, window * found.chunk_size) as buffer, memoryview(buffer) as view:
            for first in range(0, found.chunk_count, window):
                count = min(window, found.chunk_count - first)
                size = count * found.chunk_size
                with view[:size] as part:
                    offset = pack_reader.DATA_OFFSET + first * found.chunk_size
                    self._origin.read_exactly(key, offset, part)
                    actual = dataplane.scan_buffer(part, found.chunk_size).digests()
                start = first * pack_reader.DIGEST_SIZE
                expected = found.digests[start : start + len(actual)]
                if actual != expected:
                    unsound.extend(
                        first + position
                        for position in range(count)
                        if actual[position * 32 : position * 32 + 32]
                        != expected[position * 32 : position * 32 + 32]
                    )
                self._progress.advance(size)
        return unsound

    def _judge_image(self, image_id: str, manifest: dataplane.Manifest) -> None:
        for chunk in manifest.unsound(self._index):
            entry = manifest.entry(chunk)
            if entry is None:
                continue
            _digest, pack, offset = entry
            reason = self._reasons.get(pack, "the content is not what its digest says")
            self._report.damages.append(Damage(reason, image_id, chunk, pack.hex(), offset))

    def _judge_unneeded(self, packs: set[bytes]) -> None:
        """Report damage of packs that no image needs: new images would be deduplicated to them.

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
            for position in self._unsound.get(pack, []):
                offset = pack_reader.DATA_OFFSET + position * self._repository.chunk_size
                what = "the content is not what its digest says"
                self._report.damages.append(Damage(what, pack=name, offset=offset))


def damages_by_image(report: Report) -> dict[str, list[Damage]]:
    """Return the damages of each image; those of no image under the empty name."""
    found: defaultdict[str, list[Damage]] = defaultdict(list)
    for damage in report.damages:
        found[damage.image or ""].append(damage)
    return dict(found)
