"""Writing a version into a disk: only the chunks that the disk has otherwise.

The disk itself is asked what it has: what its own file holds is read and compared by digest, and of
the rest, which is the base's, only what the version has otherwise than the base is looked at. So
the result does not depend on what anybody believes of the disk, a disk that is half written is
written on from where it is, and writing again writes nothing.

Source: CloudVS, §3.7, reverse delta. Differs: there the difference is of two versions' deltas, with
offsets that the guest's host has noted since; here it is of the disk and the version.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from acstor import native
from acstor.agent.captures.parents import Comparison
from acstor.agent.captures.reading import WINDOW_BYTES, Pace, Pieces
from acstor.agent.restores.supply import ChunkSupply
from acstor.agent.restores.target import DiskTarget
from acstor.repository.disk_manifest import DiskManifest, Entry
from acstor.repository.pack_reader import DIGEST_SIZE

_ZERO = bytes(DIGEST_SIZE)

Change = tuple[int, Entry | None]
"""Index of a chunk that the disk has otherwise, and its place; None: zeros."""


@dataclasses.dataclass(slots=True)
class Written:
    """Account of a restore."""

    read_bytes: int = 0
    """Bytes of the disk that were compared."""
    fetched_bytes: int = 0
    """Bytes that were fetched, as they are stored."""
    local_bytes: int = 0
    """Bytes that the base file, or the disk at another place, had; as they are stored."""
    written_bytes: int = 0
    """Bytes of the disk that were written."""

    def add(self, other: "Written") -> None:
        """Add the account of another disk."""
        for field in dataclasses.fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)


class VersionWriter:
    """Writes one version into one disk.

    :param wanted: content; None: zeros.
    :param comparison: of the version with the disk's base; None: all of the disk is read.
    :param pace: limits; ``write`` is of what is written.
    :param touch: called right before the first byte is written.
    """

    def __init__(
        self,
        target: DiskTarget,
        wanted: DiskManifest | None,
        comparison: Comparison | None,
        chunk_size: int,
        supply: ChunkSupply,
        pace: Pace,
        touch: Callable[[], None],
    ) -> None:
        self._target = target
        self._wanted = wanted
        self._chunk_size = chunk_size
        self._supply = supply
        self._pace = pace
        self._touch = touch
        self._is_touched = False
        self._pieces = Pieces(target, comparison, chunk_size)
        self._step = max(WINDOW_BYTES // chunk_size, 1) * chunk_size
        self._read = memoryview(bytearray(self._step))
        self._content = memoryview(bytearray(self._step))
        self.written = Written()

    @property
    def data_bytes(self) -> int:
        """Bytes of the disk to compare."""
        return self._pieces.data_bytes

    def write(self) -> Written:
        """Write what is otherwise; it is durable once the disk is finished.

        :raises CorruptError: when a chunk of the version is not what its digest says.
        :raises UnavailableError: when the disk or the origin cannot be reached.
        """
        for piece in self._pieces:
            for start in range(piece.start, piece.end, self._step):
                self._pace.check()
                end = min(start + self._step, piece.end)
                if piece.is_zero:
                    changes = self._otherwise_than_zeros(start, end)
                else:
                    changes = self._otherwise_than_read(start, end)
                self._put(changes)
                self._pace.advance(self.written.read_bytes, self.data_bytes)
        return self.written

    def _entries(self, start: int, end: int) -> dict[int, Entry]:
        """Return the chunks with content that the version has between two offsets."""
        if self._wanted is None:
            return {}
        first = start // self._chunk_size
        last = min(end // self._chunk_size, self._wanted.chunk_count)
        return dict(self._wanted.entries_between(first, last)) if first < last else {}

    def _otherwise_than_zeros(self, start: int, end: int) -> list[Change]:
        return list(self._entries(start, end).items())

    def _otherwise_than_read(self, start: int, end: int) -> list[Change]:
        window = self._read[: end - start]
        present = min(len(window), self._target.size_bytes - start)
        self._target.read_into(start, window[:present])
        window[present:] = bytes(len(window) - present)
        self.written.read_bytes += present
        self._wait(self._pace.read.take(present))
        first, entries = start // self._chunk_size, self._entries(start, end)
        indexes = range(first, first + len(window) // self._chunk_size)
        digests = b"".join(
            entries[index].digest if index in entries else _ZERO for index in indexes
        )
        unlike = native.unsound_chunks(window, self._chunk_size, digests)
        others = {first + position for position in unlike}
        self._note({index: entry for index, entry in entries.items() if index not in others})
        return [(first + position, entries.get(first + position)) for position in unlike]

    def _put(self, changes: Sequence[Change]) -> None:
        """Fetch and write chunks of one window."""
        wanted = [(index, entry) for index, entry in changes if entry is not None]
        supplied = self._supply.fill(wanted, self._content[: len(wanted) * self._chunk_size])
        self.written.fetched_bytes += supplied.fetched_bytes
        self.written.local_bytes += supplied.local_bytes
        self._pace.check()
        if changes and not self._is_touched:
            self._touch()
            self._is_touched = True
        number = 0
        for run in _runs(changes):
            if run[0][1] is None:
                self._write(run[0][0], memoryview(bytes(len(run) * self._chunk_size)))
                continue
            begin = number * self._chunk_size
            number += len(run)
            self._write(run[0][0], self._content[begin : number * self._chunk_size])
        self._note(dict(wanted))

    def _note(self, entries: Mapping[int, Entry]) -> None:
        """Note chunks that the disk has as the version has them."""
        for index, entry in entries.items():
            self._supply.placed.note(index, entry.digest)

    def _write(self, index: int, data: memoryview) -> None:
        """Write chunks from one on, as far as they are on the disk."""
        offset = index * self._chunk_size
        data = data[: self._target.size_bytes - offset]
        self._target.write(offset, data)
        self.written.written_bytes += len(data)
        self._wait(self._pace.write.take(len(data)))

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._pace.wait(seconds)


def _runs(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield neighbours that are written at once: all zeros, or all content."""
    run: list[Change] = []
    for change in changes:
        is_next = run and change[0] == run[-1][0] + 1
        if run and not (is_next and (change[1] is None) == (run[-1][1] is None)):
            yield run
            run = []
        run.append(change)
    if run:
        yield run
