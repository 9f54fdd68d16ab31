"""Stripes of large objects: RADOS objects of 4 MiB, so that all OSDs share in a read."""

import collections
from collections.abc import Sequence
from typing import Any

from acstor import exception
from acstor.origin.rados.cluster import AbsentError, Cluster
from acstor.origin.rados.head import Head

IN_FLIGHT_MAX = 8
"""Stripes that one call writes or reads at once: more would keep others waiting."""


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

    def read(self, key: str, head: Head, offset: int, buffer: memoryview) -> int:
        """Read into ``buffer``, all stripes at once; return the number of bytes.

        :raises AbsentError: when a stripe is not there (any more).
        """
        size = min(len(buffer), max(0, head.size - offset))
        pieces = _pieces(head, offset, size)
        found: dict[int, bytes] = {}
        done = 0
        for group in (
            pieces[first : first + IN_FLIGHT_MAX] for first in range(0, len(pieces), IN_FLIGHT_MAX)
        ):
            found = self._read_group(key, head, group)
            for number, _, length in group:
                if len(found[number]) != length:
                    raise exception.CorruptError(f"stripe {number} of {key} is cut off")
                buffer[done : done + length] = found[number]
                done += length
        return done

    def _read_group(
        self, key: str, head: Head, group: Sequence[tuple[int, int, int]]
    ) -> dict[int, bytes]:
        what = f"reading {key}"
        found: dict[int, bytes] = {}
        if len(group) == 1:
            number, start, length = group[0]
            with self._cluster.map_errors(what):
                return {number: self._context.read(_name(key, head, number), length, start)}
        completions = []
        with self._cluster.map_errors(what):
            for number, start, length in group:

                def note(_: Any, content: bytes | None, number: int = number) -> None:
                    found[number] = content or b""

                completions.append(
                    self._context.aio_read(_name(key, head, number), length, start, note)
                )
        errors = []
        for completion in completions:
            try:
                self._cluster.completed(completion, what)
            except (AbsentError, exception.AcstorError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return found

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
