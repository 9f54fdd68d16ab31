"""Making, registering and reading back small images, for tests."""

import random
import uuid

from acstor.origin import base
from acstor.repository import layout
from acstor.repository.disk_manifest import Entry
from acstor.repository.images import registration
from acstor.repository.pack_reader import StoredPack, read_pack
from acstor.repository.repository import FORMAT_VERSION, Repository
from tests.unit.repository.memory_source import MemorySource

CHUNK_SIZE = 4096
SETTINGS = registration.Settings(pack_size=4 * CHUNK_SIZE, workers=0)
"""Tiny packs, stored in the caller's thread: every interleaving is then a sequence of calls."""


def image_id(number: int) -> str:
    """Return the same UUID for the same number."""
    return str(uuid.UUID(int=number + 1))


def chunk(number: int) -> bytes:
    """Return the content of a chunk; number 0 is a zero chunk."""
    return random.Random(number).randbytes(CHUNK_SIZE) if number else bytes(CHUNK_SIZE)


def disk(*numbers: int) -> bytes:
    """Return a disk made of chunks."""
    return b"".join(map(chunk, numbers))


def register(
    repository: Repository,
    number: int,
    content: bytes,
    settings: registration.Settings = SETTINGS,
) -> registration.Report:
    """Register a disk's content."""
    request = registration.Request(
        image_id(number), f"image {number}", MemorySource(content), "raw"
    )
    return registration.Registrar(repository, settings).register(request)


def read_back(repository: Repository, number: int) -> bytes:
    """Return the content of a registered image as a host would read it."""
    image = repository.get_image(image_id(number))
    manifest = repository.load_manifest(image.record.manifest)
    parts = []
    for index in range(manifest.chunk_count):
        entry = manifest.entry(index)
        parts.append(read_chunk(repository.origin, entry) if entry else bytes(CHUNK_SIZE))
    return b"".join(parts)[: manifest.size_bytes]


def read_chunk(objects: base.ObjectStore, entry: Entry) -> bytes:
    """Return the plain content of a chunk, which is verified where packs say how."""
    key = layout.pack_key(entry.pack.hex())
    stored = objects.get_range(key, entry.offset, entry.stored_size)
    pack = read_pack(objects, entry.pack)
    if not isinstance(pack, StoredPack):
        return stored
    (position,) = [at for at in range(pack.chunk_count) if pack.offset_of(at) == entry.offset]
    content = bytearray(CHUNK_SIZE)
    damages = pack.records.decompress([position], entry.offset, stored, CHUNK_SIZE, content)
    assert damages == []
    return bytes(content)


def open_repository(origin: base.Origin, version: int = FORMAT_VERSION) -> Repository:
    """Return a new repository with tiny chunks."""
    return Repository.init(origin, CHUNK_SIZE, version)
