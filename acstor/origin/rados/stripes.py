"""Stripes of large objects: RADOS objects of 4 MiB, so that all OSDs share in a read."""

import collections
from typing import Any

from acstor import exception
from acstor.origin.rados.batch import Piece
from acstor.origin.rados.cluster import AbsentError, Cluster
from acstor.origin.rados.head import Head
from acstor.origin.rados.reading import Reading, contents

IN_FLIGHT_MAX = 8
"""Stripes that one object is written or read by at once: more would keep others waiting."""


class Stripes:
    """The stripes in one namespace of a pool.

    :param context: of pool and namespace.
    """

    def __init__(self, cluster: Cluster, context: Any) -> None:
        """Use the stripes there."""
        self._cluster = cluster
        self._context = context

    def write(self, key: str, head: Head, content: memoryview) -> None:
        """Write all stripes of an object."""
        pending: collections.deque[Any] = collections.deque()
        what = f"storing stripes of {key}"
        try:
            for number in range(head.stripe_count):
                start = number * head.stripe_size
                part = bytes(content[start : start + head.stripe_size])
                if len(pending) == IN_FLIGHT_MAX:
                    self._cluster.completed(pending.popleft(), what)
                with self._cluster.map_errors(what):
                    pending.append(self._context.aio_write_full(_name(key, head, number), part))
        finally:
            while pending:
                self._cluster.completed(pending.popleft(), what)

    def reading(self, key: str, head: Head, offset: int, buffer: memoryview) -> Reading:
        """Fill ``buffer``, several stripes at once; return the number of bytes.

        :raises AbsentError: when a stripe is not there (any more).
        """
        pieces = _pieces(head, offset, min(len(buffer), max(0, head.size - offset)))
        done = 0
        for first in range(0, len(pieces), IN_FLIGHT_MAX):
            group = pieces[first : first + IN_FLIGHT_MAX]
            answers = yield [
                Piece(self._context, _name(key, head, number), start, length)
                for number, start, length in group
            ]
            for (number, _, length), content in zip(group, contents(answers), strict=True):
                if len(content) != length:
                    raise exception.CorruptError(f"stripe {number} of {key} is cut off")
                buffer[done : done + length] = content
                done += length
        return done

    def remove(self, key: str, head: Head) -> None:
        """Remove all stripes of an object, where they are there."""
        for number in range(head.stripe_count):
            try:
                with self._cluster.map_errors(f"removing stripes of {key}"):
                    self._context.remove_object(_name(key, head, number))
            except AbsentError:
                pass


def _name(key: str, head: Head, number: int) -> str:
    return f"{key}@{head.nonce.hex()}.{number}"


def _pieces(head: Head, offset: int, size: int) -> list[tuple[int, int, int]]:
    """Return (stripe, offset in it, length) of a range."""
    pieces = []
    while size > 0:
        number, start = divmod(offset, head.stripe_size)
        length = min(size, head.stripe_size - start)
        pieces.append((number, start, length))
        offset, size = offset + length, size - length
    return pieces
