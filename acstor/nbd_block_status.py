"""A connection to an NBD export that tells what its blocks are: holes, zeros, layers.

It only asks for that; data is read through another connection, which needs no structured replies.

Source: the NBD protocol document (github.com/NetworkBlockDevice/nbd, doc/proto.md), sections
"Metadata querying", "NBD_CMD_BLOCK_STATUS" and "Structured replies"; the context
``qemu:allocation-depth``: docs/interop/nbd.txt of QEMU, since QEMU 5.2.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from acstor.nbd_connection import ConnectionLostError, NbdConnection

ALLOCATION = "base:allocation"
"""Context that tells of holes and zeros."""
DEPTH = "qemu:allocation-depth"
"""Context that tells in which layer of a chain of images blocks are: 1 is the topmost; 0: none."""
IS_HOLE = 1 << 0
"""Flag of :data:`ALLOCATION`: nothing is allocated."""
IS_ZERO = 1 << 1
"""Flag of :data:`ALLOCATION`: it reads as zeros."""
ASKED_BYTES_MAX = 1 << 30
"""Bytes of the export that one request asks about."""

_REPLY_SIZE_MAX = 4 << 20
_NAME_SIZE_MAX = 4096
_OPTION_MAGIC = 0x49484156454F5054
_OPTION_REPLY_MAGIC = 0x3E889045565A9
_REQUEST_MAGIC = 0x25609513
_STRUCTURED_MAGIC = 0x668E33EF
_OPTION_STRUCTURED_REPLY = 8
_OPTION_SET_META_CONTEXT = 10
_REPLY_ACK = 1
_REPLY_META_CONTEXT = 4
_COMMAND_BLOCK_STATUS = 7
_CHUNK_IS_DONE = 1
_CHUNK_NONE = 0
_CHUNK_BLOCK_STATUS = 5
_CHUNK_IS_ERROR = 1 << 15
_REQUEST = struct.Struct(">IHHQQI")
_OPTION = struct.Struct(">QII")
_OPTION_REPLY = struct.Struct(">QIII")
_CHUNK = struct.Struct(">IHHQI")
_DESCRIPTOR = struct.Struct(">II")


class BlockStatus(NamedTuple):
    """Status of a range of an export."""

    start: int
    end: int
    flags: tuple[int, ...]
    """By context, in the order in which they were asked for."""


class NbdBlockStatus(NbdConnection):
    """A connection that tells what the blocks of one export are.

    :param contexts: names of the metadata contexts.
    :raises ConnectionLostError: as :class:`.NbdConnection`, and when the server does not have all
        of the contexts.
    """

    def __init__(
        self, socket_path: str, export: str, contexts: Sequence[str], timeout_seconds: float
    ) -> None:
        self._contexts = tuple(contexts)
        self._ids: dict[int, int] = {}
        super().__init__(socket_path, export, timeout_seconds)

    def statuses(self, start: int, end: int) -> Iterator[BlockStatus]:
        """Yield what the bytes from ``start`` to ``end`` are, ascending, without gap or overlap.

        :param start: a multiple of the block size.
        :raises OSError: with the server's error.
        :raises ConnectionLostError: see the class; the connection is of no more use.
        """
        position = start
        while position < end:
            found = self._ask(position, min(ASKED_BYTES_MAX, end - position))
            for status in _merged(position, end, found):
                yield status
                position = status.end

    # Negotiation

    def _prepare(self, export: str) -> None:
        self._ask_option(_OPTION_STRUCTURED_REPLY, b"")
        name = export.encode()
        data = [struct.pack(">I", len(name)), name, struct.pack(">I", len(self._contexts))]
        for context in self._contexts:
            data += [struct.pack(">I", len(context)), context.encode()]
        self._ask_option(_OPTION_SET_META_CONTEXT, b"".join(data))
        missing = set(range(len(self._contexts))) - set(self._ids.values())
        if missing:
            names = ", ".join(self._contexts[number] for number in sorted(missing))
            raise ConnectionLostError(errno.ENOTSUP, f"the NBD server does not tell of {names}")

    def _ask_option(self, option: int, data: bytes) -> None:
        self._send_bytes(_OPTION.pack(_OPTION_MAGIC, option, len(data)) + data)
        for _ in range(len(self._contexts) + 2):
            magic, answered, kind, length = _OPTION_REPLY.unpack(self._receive(_OPTION_REPLY.size))
            if magic != _OPTION_REPLY_MAGIC or answered != option or length > _NAME_SIZE_MAX:
                raise _broken()
            content = self._receive(length)
            if kind == _REPLY_ACK:
                return
            if kind != _REPLY_META_CONTEXT or length < 4:
                raise ConnectionLostError(
                    errno.ENOTSUP, f"the NBD server refuses option {option}: {kind:#x}"
                )
            context = content[4:].decode(errors="replace")
            if context in self._contexts:
                number = int.from_bytes(content[:4], "big")
                self._ids[number] = self._contexts.index(context)
        raise _broken()

    # Requests

    def _ask(self, offset: int, length: int) -> list[list[tuple[int, int]]]:
        """Return (length, flags) of runs from ``offset`` on, of each context."""
        self._cookie += 1
        cookie = self._cookie
        self._send_bytes(
            _REQUEST.pack(_REQUEST_MAGIC, 0, _COMMAND_BLOCK_STATUS, cookie, offset, length)
        )
        found: list[list[tuple[int, int]]] = [[] for _ in self._contexts]
        failed = 0
        is_done = False
        while not is_done:
            magic, flags, kind, answered, size = _CHUNK.unpack(self._receive(_CHUNK.size))
            if magic != _STRUCTURED_MAGIC or answered != cookie or size > _REPLY_SIZE_MAX:
                raise _broken()
            content = self._receive(size)
            is_done = bool(flags & _CHUNK_IS_DONE)
            if kind & _CHUNK_IS_ERROR:
                failed = int.from_bytes(content[:4], "big") or errno.EIO
            elif kind == _CHUNK_BLOCK_STATUS:
                self._take_statuses(content, found)
            elif kind != _CHUNK_NONE:
                raise _broken()
        if failed:
            raise OSError(failed, os.strerror(failed))
        if not all(found):
            raise _broken()
        return found

    def _take_statuses(self, content: bytes, found: list[list[tuple[int, int]]]) -> None:
        number = self._ids.get(int.from_bytes(content[:4], "big"))
        if number is None or len(content) < 12 or (len(content) - 4) % _DESCRIPTOR.size:
            raise _broken()
        runs = list(_DESCRIPTOR.iter_unpack(content[4:]))
        if not all(length for length, _ in runs):
            raise _broken()
        found[number].extend(runs)


def _merged(
    start: int, end: int, found: Sequence[Sequence[tuple[int, int]]]
) -> Iterator[BlockStatus]:
    """Yield ranges in which no context changes, as far as all of them tell."""
    numbers = [0] * len(found)
    ends = [start + runs[0][0] for runs in found]
    position = start
    while position < end:
        piece_end = min(*ends, end)
        flags = tuple(runs[number][1] for runs, number in zip(found, numbers, strict=True))
        yield BlockStatus(position, piece_end, flags)
        position = piece_end
        for context, runs in enumerate(found):
            if ends[context] > position:
                continue
            numbers[context] += 1
            if numbers[context] >= len(runs):
                return
            ends[context] += runs[numbers[context]][0]


def _broken() -> ConnectionLostError:
    return ConnectionLostError(errno.EPROTO, "the NBD server breaks the protocol")
