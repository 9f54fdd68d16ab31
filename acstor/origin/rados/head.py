"""The head of an object: the RADOS object that says whether it is there, and where its bytes are.

Little-endian, 40 bytes: magic, version, kind, two bytes of zeros, size, stripe size, nonce, CRC-32.
A small object's bytes follow; those of a larger one are in stripes that its nonce names.
"""

import dataclasses
import enum
import secrets
import struct
import zlib

from acstor import exception

MAGIC = b"ACSO"
HEAD_VERSION = 1
"""Version of the heads that this build writes, and the only one that it reads."""
_FORMAT = struct.Struct("<4sBBHQI16s")
HEAD_BYTES = _FORMAT.size + 4
NONCE_BYTES = 16
STRIPES_MAX = 1 << 16
"""Most stripes of an object: 256 GiB of those that are written. A head of 40 bytes, which a host
may have made up, must not keep who deletes or sweeps busy for ever."""


class Kind(enum.IntEnum):
    """State of an object."""

    WHOLE = 0
    """It is there, and its bytes follow the head."""
    PENDING = 1
    """It is not there: somebody writes stripes."""
    STRIPED = 2
    """It is there, in stripes."""
    DEAD = 3
    """It is not there: stripes are being removed, and none is written any more."""


_KINDS = frozenset(map(int, Kind))


@dataclasses.dataclass(frozen=True, slots=True)
class Head:
    """State and size of an object, and what its stripes are named by."""

    kind: Kind
    size: int
    stripe_size: int
    nonce: bytes

    @classmethod
    def new(cls, kind: Kind, size: int, stripe_size: int) -> "Head":
        """Return the head of an object that nobody has written yet."""
        return cls(kind, size, stripe_size, secrets.token_bytes(NONCE_BYTES))

    @property
    def is_there(self) -> bool:
        """True if the object is there."""
        return self.kind in (Kind.WHOLE, Kind.STRIPED)

    @property
    def stripe_count(self) -> int:
        """Number of stripes; of a whole object none."""
        return 0 if self.kind is Kind.WHOLE else -(-self.size // self.stripe_size)

    def turned(self, kind: Kind) -> "Head":
        """Return the head in another state."""
        return dataclasses.replace(self, kind=kind)

    def encode(self) -> bytes:
        """Return the bytes."""
        fields = _FORMAT.pack(
            MAGIC, HEAD_VERSION, self.kind, 0, self.size, self.stripe_size, self.nonce
        )
        return fields + zlib.crc32(fields).to_bytes(4, "little")

    @classmethod
    def parse(cls, content: bytes, what: str) -> "Head":
        """Read the first bytes of a RADOS object.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is no head.
        """
        start = content[: _FORMAT.size]
        if len(content) >= 5 and content[:4] == MAGIC and content[4] != HEAD_VERSION:
            raise exception.UnsupportedError(
                f"{what} has a head of version {content[4]}, this release reads {HEAD_VERSION}"
            )
        if len(content) < HEAD_BYTES or zlib.crc32(start) != int.from_bytes(
            content[_FORMAT.size : HEAD_BYTES], "little"
        ):
            raise exception.CorruptError(f"{what} has no head", hint="is the pool another one's?")
        magic, _, kind, _, size, stripe_size, nonce = _FORMAT.unpack(start)
        if magic != MAGIC or kind not in _KINDS or not stripe_size:
            raise exception.CorruptError(f"{what} has no head", hint="is the pool another one's?")
        found = cls(Kind(kind), size, stripe_size, nonce)
        if found.stripe_count > STRIPES_MAX:
            raise exception.CorruptError(f"{what} has {found.stripe_count} stripes: no object has")
        return found
