"""Content of the chunks that a disk is to have: of the base file, of the disk itself, or fetched.

Everything is verified by its digest. What the host has so is not moved, and what comes several
times is moved once: a restore moves no more than the smaller of reverse and differential delta.

Source: CloudVS, §3.7, which leaves the choice between these two open: here they are one.
"""

import collections
import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from acstor import exception, native
from acstor.agent.captures.parents import is_base_of
from acstor.agent.captures.sources.base import DiskSource
from acstor.repository.disk_manifest import DiskManifest, Entry
from acstor.repository.reading.chunk_reader import ChunkReader
from acstor.repository.repository import Repository

PLACES_MAX = 1 << 16
"""Chunks of the disk whose places are known at a time, those that were seen last."""

Wanted = tuple[int, Entry]
"""Index of a chunk with content, and its place."""


class Supplied(NamedTuple):
    """Bytes that were had, as they are stored."""

    fetched_bytes: int
    local_bytes: int


class BaseFile:
    """The file that a disk is based on, as an image of the repository has its content.

    It need not be raw, nor whole: what it has otherwise than the image is not taken.

    :param descriptor: of the file; owned by this. -1: there is none.
    :param manifest: of the image; None: there is none.
    """

    def __init__(self, descriptor: int = -1, manifest: DiskManifest | None = None) -> None:
        self._descriptor = descriptor
        self._manifest = manifest

    @classmethod
    def open(cls, repository: Repository, image_id: str | None, path: str | None) -> "BaseFile":
        """Return the base file of a disk, one without content where it is not an image's.

        :param image_id: image that the disk was made of.
        :param path: file that the disk's own file names.
        """
        if image_id is None or path is None or not is_base_of(path, image_id):
            return cls()
        image = repository.find_image(image_id)
        if image is None:
            return cls()
        try:
            manifest = repository.load_manifest(image.record.manifest)
            # Nova's own folder: a name there may be a link to a file that the data plane serves.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, exception.NotFoundError):
            return cls()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return cls()
        return cls(descriptor, manifest)

    def has(self, index: int, entry: Entry) -> bool:
        """Return whether it should have a chunk, at the same place."""
        manifest = self._manifest
        if manifest is None or index >= manifest.chunk_count:
            return False
        found = manifest.entry(index)
        return found is not None and found.digest == entry.digest

    def read(self, index: int, entry: Entry, out: memoryview) -> bool:
        """Fill a buffer with a whole chunk; return whether that is what its digest says."""
        done, offset = 0, index * len(out)
        with contextlib.suppress(OSError):
            while done < len(out):
                count = os.preadv(self._descriptor, [out[done:]], offset + done)
                if not count:
                    break
                done += count
            out[done:] = bytes(len(out) - done)
            return not native.unsound_chunks(out, len(out), entry.digest)
        return False

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        self._manifest = None
        if descriptor >= 0:
            os.close(descriptor)


class PlacedChunks:
    """Chunks that the disk has as the version has them, so that they stay."""

    def __init__(self, disk: DiskSource, places_max: int = PLACES_MAX) -> None:
        self._disk = disk
        self._places_max = places_max
        self._places: collections.OrderedDict[bytes, int] = collections.OrderedDict()

    def note(self, index: int, digest: bytes) -> None:
        """Note that the disk has a chunk at a place."""
        self._places[digest] = index
        self._places.move_to_end(digest)
        if len(self._places) > self._places_max:
            self._places.popitem(last=False)

    def read(self, entry: Entry, out: memoryview) -> bool:
        """Fill a buffer with a chunk; return whether the disk has it."""
        index = self._places.get(entry.digest)
        if index is None:
            return False
        offset = index * len(out)
        present = min(len(out), self._disk.size_bytes - offset)
        self._disk.read_into(offset, out[:present])
        out[present:] = bytes(len(out) - present)
        return not native.unsound_chunks(out, len(out), entry.digest)


class ChunkSupply:
    """Supply of chunks of one version.

    :param base: of the disk; closed by its owner.
    :param placed: chunks that the disk has.
    """

    def __init__(
        self, reader: ChunkReader, chunk_size: int, base: BaseFile, placed: PlacedChunks
    ) -> None:
        self._reader = reader
        self._chunk_size = chunk_size
        self._base = base
        self.placed = placed

    def fill(self, wanted: Sequence[Wanted], out: memoryview) -> Supplied:
        """Fill a buffer with chunks, one after the other; what comes twice is had once.

        :param out: as long as they are.
        :raises CorruptError: when a chunk is not what its digest says, or is nowhere.
        :raises UnavailableError: when the origin cannot be reached.
        """
        places: dict[bytes, int] = {}
        fetched: dict[int, Entry] = {}
        local = 0
        for position, (index, entry) in enumerate(wanted):
            if entry.digest in places:
                continue
            places[entry.digest] = position
            if self._is_local(index, entry, self._chunk(out, position)):
                local += entry.stored_size
            else:
                fetched[position] = entry
        self._fetch(fetched, out)
        for position, (_, entry) in enumerate(wanted):
            if (first := places[entry.digest]) != position:
                self._chunk(out, position)[:] = self._chunk(out, first)
        return Supplied(sum(entry.stored_size for entry in fetched.values()), local)

    def _is_local(self, index: int, entry: Entry, out: memoryview) -> bool:
        """Fill a buffer with a chunk that this host has; return whether it has it."""
        if self._base.has(index, entry) and self._base.read(index, entry, out):
            return True
        return self.placed.read(entry, out)

    def _fetch(self, wanted: Mapping[int, Entry], out: memoryview) -> None:
        places = [position * self._chunk_size for position in wanted]
        if places:
            self._reader.read_into(places, list(wanted.values()), out)

    def _chunk(self, out: memoryview, position: int) -> memoryview:
        return out[position * self._chunk_size : (position + 1) * self._chunk_size]
