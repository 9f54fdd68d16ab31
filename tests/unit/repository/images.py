"""Making, registering and reading back small images, for tests."""

import random
import uuid

from acstor.origin import base
from acstor.repository.images import registration
from acstor.repository.repository import FORMAT_VERSION, Repository
from testbed.fixtures.stored_chunks import read_chunk
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
        parts.append(
            bytes(CHUNK_SIZE) if entry is None else read_chunk(repository.origin, entry, CHUNK_SIZE)
        )
    return b"".join(parts)[: manifest.size_bytes]


def open_repository(origin: base.Origin, version: int = FORMAT_VERSION) -> Repository:
    """Return a new repository with tiny chunks."""
    return Repository.init(origin, CHUNK_SIZE, version)
