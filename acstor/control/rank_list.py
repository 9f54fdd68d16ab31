"""Orders of chunks of one disk: the chunks that boots read, in the order of first touch.

Their form (``doc/source/reference/formats/rank-list.rst``) is that of ``crates/readpath``
(``ahead/rank_list.rs``). Others sent most of what is read here: nothing is allocated for more than
there are bytes.
"""

import struct
from collections.abc import Sequence

from acstor import exception

VERSION = 1
"""Version of the form."""
ORDERS_MAX = 3
"""Most orders: kinds of boots of a disk."""
CHUNKS_MAX = 1 << 14
"""Most chunks of an order: 1 GiB of chunks of 64 KiB."""
CHUNKS_MIN = 16
"""Least chunks of a boot; who reads less inspects the image."""
_MAGIC = b"ACSTRANK"
_HEADER = struct.Struct("<8sII")
_COUNT = struct.Struct("<I")
_VARINT_BYTES_MAX = 5

Order = tuple[int, ...]


def len_max(orders: int = ORDERS_MAX) -> int:
    """Return the greatest length of that many orders, bytes."""
    return _HEADER.size + orders * (_COUNT.size + CHUNKS_MAX * _VARINT_BYTES_MAX)


def encode(orders: Sequence[Sequence[int]]) -> bytes:
    """Return the form of some orders, each of different chunks."""
    content = bytearray(_HEADER.pack(_MAGIC, VERSION, len(orders)))
    for order in orders:
        content += _COUNT.pack(len(order))
        expected = 0
        for chunk in order:
            delta = chunk - expected
            value = 2 * delta if delta >= 0 else -2 * delta - 1
            while value >= 0x80:
                content.append(value & 0x7F | 0x80)
                value >>= 7
            content.append(value)
            expected = chunk + 1
    return bytes(content)


def decode(content: bytes, chunk_count: int) -> tuple[Order, ...]:
    """Return the orders that bytes are, of chunks of a disk of that many.

    :raises CorruptError: when they are none.
    """
    if len(content) < _HEADER.size:
        raise _refused(chunk_count, f"{len(content)} bytes")
    magic, version, count = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise _refused(chunk_count, "they do not begin so")
    if version != VERSION:
        raise _refused(chunk_count, f"version {version}, this release reads {VERSION}")
    if count > ORDERS_MAX:
        raise _refused(chunk_count, f"{count} of them")
    orders = []
    at = _HEADER.size
    for _ in range(count):
        order, at = _order(content, at, chunk_count)
        orders.append(order)
    if at != len(content):
        raise _refused(chunk_count, f"{len(content) - at} bytes are left over")
    return tuple(orders)


def _order(content: bytes, at: int, chunk_count: int) -> tuple[Order, int]:
    left = len(content) - at - _COUNT.size
    if left < 0:
        raise _refused(chunk_count, "they end within one")
    (count,) = _COUNT.unpack_from(content, at)
    if not 0 < count <= min(CHUNKS_MAX, left):
        raise _refused(chunk_count, f"one has {count} chunks in {left} bytes")
    at += _COUNT.size
    order = []
    expected = 0
    for _ in range(count):
        value, at = _varint(content, at, chunk_count)
        chunk = expected + (-(value + 1 >> 1) if value & 1 else value >> 1)
        if not 0 <= chunk < chunk_count:
            raise _refused(chunk_count, f"one has chunk {chunk}")
        order.append(chunk)
        expected = chunk + 1
    if len(set(order)) != count:
        raise _refused(chunk_count, "one has a chunk twice")
    return tuple(order), at


def _varint(content: bytes, at: int, chunk_count: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(content[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            if value >> 32 or (number and not byte):
                break
            return value, at + number + 1
    raise _refused(chunk_count, "a number of a chunk is damaged")


def _refused(chunk_count: int, reason: str) -> exception.CorruptError:
    return exception.CorruptError(f"no orders of {chunk_count} chunks: {reason}")
