"""Captures of small disks, for tests."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from acstor import native
from acstor.origin import base
from acstor.repository.repository import Repository
from acstor.repository.source.base import Extent
from acstor.repository.versions.delta_capture import DeltaCapture, DeltaRequest, Settings
from acstor.repository.versions.known_chunks import KnownChunks
from acstor.repository.versions.store import VersionStore
from testbed.fixtures.stored_chunks import read_chunk
from tests.unit.repository.images import CHUNK_SIZE, chunk
from tests.unit.repository.versions.records import NOON, SERVER, captured, version_id

SETTINGS = Settings(pack_size=4 * CHUNK_SIZE, workers=0)
"""Tiny packs, stored in the caller's thread: every interleaving is then a sequence of calls."""


@dataclasses.dataclass
class NumberedDisk:
    """A disk whose chunks have a number each, 0 for zeros; see :func:`.images.chunk`."""

    numbers: Sequence[int]
    changed: Sequence[int] | None = None
    """Indexes of the chunks that may have changed; None: all."""
    has_holes: bool = False
    """True if chunks of zeros are known to be some."""
    scanned: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.numbers) * CHUNK_SIZE

    def extents(self) -> Iterator[Extent]:
        indexes = range(len(self.numbers)) if self.changed is None else sorted(self.changed)
        for index in indexes:
            is_zero = self.has_holes and not self.numbers[index]
            yield Extent(index * CHUNK_SIZE, (index + 1) * CHUNK_SIZE, is_zero)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        first = offset // CHUNK_SIZE
        count = len(buffer) // CHUNK_SIZE
        self.scanned += count
        buffer[:] = b"".join(map(chunk, self.numbers[first : first + count]))
        return native.scan_buffer(buffer, chunk_size, scope)

    def check_unchanged(self) -> None:
        """Never change."""


def store_of(repository: Repository) -> VersionStore:
    """Return the versions of a repository at a standing time."""
    return VersionStore(repository, wait=lambda seconds: None, now=lambda: NOON)


def take(
    store: VersionStore,
    number: int,
    disk: NumberedDisk,
    parent: str,
    known: KnownChunks | None = None,
    settings: Settings = SETTINGS,
    former: str | None = None,
) -> str:
    """Take a version of a disk; return its manifest.

    :param parent: manifest of the version before.
    :param former: that version.
    """
    version = version_id(number)
    store.begin(version, captured(size_bytes=disk.size_bytes, parent=former))
    request = DeltaRequest(version, "h1", disk, SERVER, parent)
    stored = DeltaCapture(store, settings, known).store(request)
    store.commit(version, "h1", stored)
    assert stored.manifest is not None
    return stored.manifest


def numbers_of(origin: base.Origin, manifest: str, known: int = 60) -> list[int]:
    """Return the numbers of the chunks of a stored disk, as a host would read it."""
    numbers = {chunk(number): number for number in range(known)}
    found = Repository.open(origin).load_manifest(manifest)
    entries = map(found.entry, range(found.chunk_count))
    contents = (
        bytes(CHUNK_SIZE) if entry is None else read_chunk(origin, entry, CHUNK_SIZE)
        for entry in entries
    )
    return [numbers[content] for content in itertools.chain(contents)]
