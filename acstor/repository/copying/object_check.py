"""Comparison of an object's bytes with its name, before they are stored anywhere else."""

from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.origin import base
from acstor.repository import disk_manifest, layout, moved_packs, pack_reader
from acstor.repository.volumes.log_object import LOG_OBJECT_SIZE_MAX, check_log_object

PACK_SIZE_MAX = (4 << 30) + (512 << 20)
"""Largest pack, bytes: 4 GiB of chunks (crates/types, limits.rs), its header and its table."""
UNREADABLE = (
    exception.NotFoundError,
    exception.CorruptError,
    exception.UnsupportedError,
    exception.InvalidError,
)
"""Errors that say that an object is not what it should be."""


class ObjectAtHand(base.ObjectStore):
    """One object in memory; all others are in a store, which is only read."""

    def __init__(self, key: str, content: memoryview, others: base.ObjectStore) -> None:
        self._key = key
        self._content = content
        self._others = others

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        if key != self._key:
            return self._others.readinto(key, offset, buffer)
        part = self._content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return len(self._content) if key == self._key else self._others.size(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """List nothing: objects are read by their names here."""
        raise exception.UnsupportedError("objects at hand are not listed")

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store nothing."""
        raise exception.UnsupportedError("objects at hand are only read")

    def delete(self, key: str) -> bool:
        """Delete nothing."""
        raise exception.UnsupportedError("objects at hand are only read")


def size_max(key: str) -> int:
    """Return the largest size that an object of that name can have, bytes."""
    if key.startswith(layout.MOVED_PREFIX):
        return moved_packs.MOVED_SIZE_MAX
    if key.startswith(layout.PACK_PREFIX):
        return PACK_SIZE_MAX
    if key.startswith(layout.MANIFEST_PREFIX):
        return disk_manifest.SIZE_MAX
    return LOG_OBJECT_SIZE_MAX


def check_object(key: str, content: memoryview, others: base.ObjectStore) -> None:
    """Compare a pack, manifest or log object with its name and its digests.

    The list of where chunks were moved to has no digest: it is parsed, and each chunk is verified
    where it is read.

    :param others: holds the manifests that a manifest is a delta of.
    :raises CorruptError: and the like, see :data:`UNREADABLE`, when it is not what it should be.
    """
    name = layout.name_of(key)
    store = ObjectAtHand(key, content, others)
    if key.startswith(layout.PACK_PREFIX) and name is not None:
        _check_pack(key, name, store)
    elif key.startswith(layout.MANIFEST_PREFIX) and name is not None:
        disk_manifest.load_manifest(store, name).check()
    elif key.startswith(layout.MOVED_PREFIX) and name is not None:
        moved_packs.load_moved(store, bytes.fromhex(name))
    elif layout.parse_log_key(key) is not None:
        check_log_object(key, bytes(content))
    else:
        raise exception.CorruptError(f"{key} is no name of an object that records name")


def _check_pack(key: str, name: str, store: ObjectAtHand) -> None:
    pack = pack_reader.read_pack(store, bytes.fromhex(name))
    size = store.size(key)
    if pack.size_bytes != size:
        raise exception.CorruptError(f"{key} has {size} bytes instead of {pack.size_bytes}")
    unsound = pack.find_unsound(store, lambda _: None)
    if unsound:
        raise exception.CorruptError(
            f"{len(unsound)} chunks of {key} are not what their digests say, the first at byte "
            f"{pack.offset_of(unsound[0])}"
        )
