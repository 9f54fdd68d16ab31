"""Reads of ranges of objects, in rounds: what a round asks for is under way at the same time.

A range needs a round or two: the head of its object, unless that is known, and the bytes. So a
range is read by a generator. It yields the pieces of RADOS objects that it needs, and is sent what
came of them; the next pieces of all ranges are read together.
"""

import time
from collections.abc import Generator, Iterable, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.rados.batch import Batches, Outcome, Piece
from acstor.origin.rados.cluster import AbsentError

Reading = Generator[Sequence[Piece], Sequence[Outcome], int]
"""Fills a range's buffer; returns the number of bytes, fewer only where the object ends."""


class Rounds:
    """Reads of ranges of one cluster's objects."""

    def __init__(self, batches: Batches) -> None:
        """Read pieces through ``batches``."""
        self._batches = batches

    def read(self, reading: Reading) -> int:
        """Read one range.

        :raises AcstorError: what keeps it from being read.
        """
        (found,) = self._run([reading], None)
        if isinstance(found, exception.AcstorError):
            raise found
        return found

    def read_many(
        self,
        ranges: Sequence[base.ReadRange],
        readings: Sequence[Reading],
        deadline_seconds: float | None,
    ) -> list[exception.AcstorError | None]:
        """Read ranges; as :meth:`acstor.origin.base.ObjectStore.read_many`."""
        end = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        found = self._run(readings, end)
        return [_problem(one, outcome) for one, outcome in zip(ranges, found, strict=True)]

    def _run(
        self, readings: Sequence[Reading], end: float | None
    ) -> list[int | exception.AcstorError]:
        outcomes: dict[int, int | exception.AcstorError] = {}
        asked: dict[int, Sequence[Piece]] = {}
        for number, reading in enumerate(readings):
            # The first step connects; where that fails, it would fail again, and take as long.
            before = outcomes.get(number - 1)
            if isinstance(before, exception.UnavailableError):
                outcomes[number] = before
            else:
                _advance(reading, None, number, asked, outcomes)
        while asked:
            found = self._batches.read([piece for one in asked.values() for piece in one], end)
            answered, asked = asked, {}
            for number, pieces in answered.items():
                answers = [found[piece] for piece in pieces]
                _advance(readings[number], answers, number, asked, outcomes)
        return [outcomes[number] for number in range(len(readings))]


def _advance(
    reading: Reading,
    answers: Sequence[Outcome] | None,
    number: int,
    asked: dict[int, Sequence[Piece]],
    outcomes: dict[int, int | exception.AcstorError],
) -> None:
    """Have a reading go on, to its next pieces or its end."""
    try:
        asked[number] = next(reading) if answers is None else reading.send(answers)
    except StopIteration as end:
        outcomes[number] = end.value
    except exception.AcstorError as error:
        outcomes[number] = error


def flat(buffer: memoryview) -> memoryview:
    """Return a buffer as one run of bytes."""
    return buffer if buffer.format == "B" and buffer.ndim == 1 else buffer.cast("B")


def contents(answers: Iterable[Outcome]) -> list[bytes]:
    """Return the content of pieces.

    :raises AbsentError: when one is not there, and nothing worse is the matter with another.
    :raises AcstorError: when one could not be read.
    """
    found: list[bytes] = []
    absent: AbsentError | None = None
    for answer in answers:
        if isinstance(answer, exception.AcstorError):
            raise answer
        if isinstance(answer, AbsentError):
            absent = answer
        else:
            found.append(answer)
    if absent is not None:
        raise absent
    return found


def _problem(
    one: base.ReadRange, outcome: int | exception.AcstorError
) -> exception.AcstorError | None:
    if isinstance(outcome, exception.AcstorError):
        return outcome
    size = one.buffer.nbytes
    if outcome < size:
        return exception.CorruptError(
            f"object {one.key} ends at byte {one.offset + outcome}, "
            f"{size - outcome} more were expected"
        )
    return None
