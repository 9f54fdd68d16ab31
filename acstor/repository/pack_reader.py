"""Reading the digests of packs from the origin."""

import concurrent.futures
import dataclasses
import logging
from collections.abc import Collection, Iterator

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout, pack_cache
from acstor.repository.gc.condemnation import Tombstones

LOG = logging.getLogger(__name__)

DATA_OFFSET = 4096
"""Offset of the first chunk in a pack, bytes."""
HEADER_SIZE = 64
"""Bytes of a pack's header that carry information."""
DIGEST_SIZE = 32
READERS = 4
"""Packs whose digests are read at the same time."""


@dataclasses.dataclass(frozen=True, slots=True)
class PackDigests:
    """Header of a pack; the pack's id is that of salt and digests."""

    pack: bytes
    salt: bytes
    chunk_size: int
    digests: bytes

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return len(self.digests) // DIGEST_SIZE


def read_digests(objects: base.ObjectStore, pack: bytes) -> PackDigests:
    """Return the digests of a pack.

    :raises NotFoundError: when there is no such pack.
    :raises CorruptError: when header or digests are damaged.
    :raises UnsupportedError: when a newer release wrote it.
    """
    key = layout.pack_key(pack.hex())
    with native.map_errors(f"reading {key}"):
        header = objects.get_range(key, 0, HEADER_SIZE)
        chunk_size, chunk_count, salt = native.parse_pack_header(header)
        digests = objects.get_range(
            key, DATA_OFFSET + chunk_size * chunk_count, chunk_count * DIGEST_SIZE
        )
        if native.pack_id(digests, salt) != pack:
            raise exception.CorruptError(f"{key}: the digests are not those of this pack")
    return PackDigests(pack, salt, chunk_size, digests)


def load_index(
    origin: base.Origin, chunk_size: int, cache: pack_cache.PackCache | None
) -> native.DigestIndex:
    """Return the digests of every pack that may be relied on.

    That is all but the condemned, and those that a host could delete.

    Packs that vanish meanwhile or are damaged are left out; chunks in them are stored anew.
    """
    names = {layout.name_of(key) for key in origin.list_protected(layout.PACK_PREFIX)} - {None}
    usable = names - Tombstones(origin).names()
    wanted = {bytes.fromhex(name) for name in usable if name}
    index = native.DigestIndex(chunk_size)
    known = cache.load(index, wanted) if cache else set()
    for found in _read_all(origin, wanted - known):
        if found.chunk_size != chunk_size:
            LOG.warning("pack %s has chunks of %d bytes", found.pack.hex(), found.chunk_size)
            continue
        index.add_pack(found.pack, found.salt, found.digests)
        if cache:
            cache.append(found.pack, found.salt, found.digests)
    return index


def _read_all(objects: base.ObjectStore, packs: Collection[bytes]) -> Iterator[PackDigests]:
    def read(pack: bytes) -> PackDigests | None:
        try:
            return read_digests(objects, pack)
        except exception.NotFoundError:
            return None
        except (exception.CorruptError, exception.UnsupportedError) as error:
            LOG.warning("pack %s is not used: %s", pack.hex(), error)
            return None

    ordered = sorted(packs)
    if len(ordered) <= READERS:
        yield from filter(None, map(read, ordered))
        return
    with concurrent.futures.ThreadPoolExecutor(READERS, "acstor-digests") as pool:
        yield from filter(None, pool.map(read, ordered))
