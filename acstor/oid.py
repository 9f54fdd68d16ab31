"""OIDs, which place chunks on the ring, computed in the control plane."""

import uuid

import xxhash

INDEX_MAX = (1 << 64) - 1
"""Largest chunk index that has an OID."""


def oid(disk_id: uuid.UUID, index: int) -> int:
    """Return the OID of a chunk: 64-bit xxh3 of (disk id, chunk index).

    The same as ``acstor_types::Oid::of``; ``tests/golden/oid.json`` holds the two together.
    Where chunks are placed in runs, the OID of a run is that of its first chunk.

    :param disk_id: the image or volume.
    :param index: index of the chunk, 0 to :data:`INDEX_MAX`.
    :returns: 0 to 2^64 - 1.
    :raises ValueError: when the index is out of range.

    Source: ACStor, section 3.4.1. Differs: the whole OID selects the host; the manifest selects
    the chunk.
    """
    if not 0 <= index <= INDEX_MAX:
        raise ValueError(f"chunk index {index} is not from 0 to {INDEX_MAX}")
    return xxhash.xxh3_64_intdigest(disk_id.bytes + index.to_bytes(8, "little"))


def rendezvous(disk_id: uuid.UUID) -> int:
    """Return the OID whose owner on the ring is the rendezvous host of a disk.

    That of an index that no manifest has a chunk of. The same as ``acstor_types::Oid::rendezvous``;
    ``tests/golden/rendezvous.json`` holds the two together.
    """
    return oid(disk_id, INDEX_MAX)


def host_number(name: str) -> int:
    """Return the number of a host in hints: 64-bit xxh3 of its name in the ring."""
    return xxhash.xxh3_64_intdigest(name.encode())
