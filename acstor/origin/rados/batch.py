"""Reads of RADOS objects that are under way at the same time, with one deadline for all.

Answers go to memory of the binding's own. The thread that asked takes them from there, so an answer
that comes after the deadline is written to no buffer of anybody.
"""

import dataclasses
import errno
import time
from _queue import Empty, SimpleQueue  # Cinder's eventlet puts a green one in the place of queue's
from collections.abc import Callable, Sequence
from typing import Any

from acstor import exception
from acstor.origin.rados.cluster import AbsentError, Cluster

IN_FLIGHT_MAX = 64
"""Reads that one call has under way: more would keep others waiting."""
IN_FLIGHT_BYTES = 32 << 20
"""Bytes that one call has under way; librados blocks at 100 MiB, whatever the deadline."""
IN_FLIGHT_ALL_MAX = 512
"""Reads that all calls have under way, those given up among them; librados blocks at 1,024."""
GRACE_SECONDS = 5.0
"""Wait for an answer that librados owes: it ends each operation at its own deadline."""


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Run of bytes of one RADOS object."""

    context: Any
    """Pool and namespace."""
    name: str
    offset: int
    size: int


Outcome = bytes | AbsentError | exception.AcstorError
"""Content of a piece, shorter where the object ends, or what keeps it from being read."""


class Batches:
    """Reads pieces of one cluster.

    :param timeout_seconds: of each operation, as librados knows it.
    """

    def __init__(self, cluster: Cluster, timeout_seconds: float) -> None:
        """Begin with nothing under way."""
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds
        self._slots: SimpleQueue[None] = SimpleQueue()
        for _ in range(IN_FLIGHT_ALL_MAX):
            self._slots.put(None)

    def read(self, pieces: Sequence[Piece], end: float | None = None) -> dict[Piece, Outcome]:
        """Read pieces; those that are equal are read once.

        :param end: monotonic seconds at which what has no answer is given up.
        """
        different = list(dict.fromkeys(pieces))
        if len(different) == 1 and end is None:
            return {different[0]: self._read_alone(different[0])}
        return _Batch(self, different, end).run()

    def _read_alone(self, piece: Piece) -> Outcome:
        """Read on this thread: an answer that passes through another's takes longer."""
        try:
            with self._cluster.map_errors(_what(piece)):
                content: bytes = piece.context.read(piece.name, piece.size, piece.offset)
        except (AbsentError, exception.AcstorError) as error:
            return error
        return content

    def start(self, piece: Piece, number: int, answers: "Answers", end: float | None) -> bool:
        """Have a piece read; return False where there is no slot for it in time."""
        left = self.seconds_left(end)
        try:
            self._slots.get(timeout=left)
        except Empty:
            return False

        def done(completion: Any, content: bytes | None) -> None:
            self._slots.put(None)
            answers.put((number, completion.get_return_value(), content))

        try:
            with self._cluster.map_errors(_what(piece)):
                piece.context.aio_read(piece.name, piece.size, piece.offset, done)
        except BaseException:
            self._slots.put(None)
            raise
        return True

    def seconds_left(self, end: float | None) -> float:
        """Return how long to wait for an answer or a slot at most."""
        longest = self._timeout_seconds + GRACE_SECONDS
        return longest if end is None else max(0.0, min(longest, end - time.monotonic()))

    def outcome(self, piece: Piece, code: int, content: bytes | None) -> Outcome:
        """Return what an answer tells."""
        if code >= 0:
            # The binding hands out the whole of its memory where nothing was read.
            return (content or b"")[:code]
        if code == -errno.ENOENT:
            return self._cluster.absent(_what(piece))
        return self._cluster.error(-code, _what(piece))


Answers = SimpleQueue[tuple[int, int, bytes | None]]
"""Of the pieces, by number: result and content."""


class _Batch:
    """Pieces of one call."""

    def __init__(self, batches: Batches, pieces: Sequence[Piece], end: float | None) -> None:
        self._batches = batches
        self._pieces = pieces
        self._end = end
        self._answers: Answers = SimpleQueue()
        self._outcomes: dict[Piece, Outcome] = {}
        self._started = 0
        self._under_way = 0
        self._bytes = 0

    def run(self) -> dict[Piece, Outcome]:
        """Return what came of each piece."""
        reason = self._start()
        while reason is None and self._under_way:
            reason = self._take() or self._start()
        for piece in self._pieces:
            self._outcomes.setdefault(piece, (reason or _overdue)(piece))
        return self._outcomes

    def _start(self) -> "_Reason | None":
        """Have pieces read, as many as may be under way; return why nothing is waited for."""
        while self._started < len(self._pieces) and self._has_room():
            piece, number = self._pieces[self._started], self._started
            if self._is_late():
                return _late
            try:
                if not self._batches.start(piece, number, self._answers, self._end):
                    return self._reason()
                self._under_way += 1
                self._bytes += piece.size
            except (AbsentError, exception.AcstorError) as error:
                self._outcomes[piece] = error
            self._started += 1
        return None

    def _has_room(self) -> bool:
        return self._under_way == 0 or (
            self._under_way < IN_FLIGHT_MAX
            and self._bytes + self._pieces[self._started].size <= IN_FLIGHT_BYTES
        )

    def _take(self) -> "_Reason | None":
        """Take one answer; return why nothing is waited for."""
        try:
            number, code, content = self._answers.get(timeout=self._batches.seconds_left(self._end))
        except Empty:
            return self._reason()
        piece = self._pieces[number]
        self._under_way -= 1
        self._bytes -= piece.size
        self._outcomes[piece] = self._batches.outcome(piece, code, content)
        if code == -errno.ETIMEDOUT:
            # What has not begun would wait as long again, and so would what comes after that.
            self._started = len(self._pieces)
        return None

    def _is_late(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def _reason(self) -> "_Reason":
        return _late if self._is_late() else _overdue


_Reason = Callable[[Piece], exception.AcstorError]
"""Says of a piece why it was given up."""


def _what(piece: Piece) -> str:
    return f"reading {piece.name}"


def _late(piece: Piece) -> exception.DeadlineError:
    return exception.DeadlineError(f"there was no time to read {piece.name}")


def _overdue(piece: Piece) -> exception.UnavailableError:
    return exception.UnavailableError(
        f"the cluster did not answer in time, so {piece.name} was not read",
        hint="check that monitors and OSDs are up ('ceph -s') and reached from here",
    )
