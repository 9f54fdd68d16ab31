"""History of writes as guests were told of them: the expectation of a volume's content.

The expectation is this history, and nothing that the code under test says of itself.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator


class HistoryError(AssertionError):
    """Contradiction between a volume and the history of its writes."""


@dataclasses.dataclass
class Write:
    """One write that was acknowledged and flushed."""

    word: str
    number: int
    """Position in the history."""
    host: str
    epoch: int
    is_stored: bool = False
    """True if it was acknowledged as stored in the origin, as write-through does each."""


class WriteHistory:
    """The writes to one volume, in the order in which they were acknowledged."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.lost_epochs: set[int] = set()
        """Epochs whose host was declared lost: what it alone had need not be in the volume."""

    def add(self, word: str, host: str, epoch: int) -> None:
        """Note a write that was acknowledged by a host from its local log."""
        self.writes.append(Write(word, len(self.writes), host, epoch))

    def unstored(self, host: str, epoch: int) -> Iterator[Write]:
        """Yield what a host has not said to be stored in the origin."""
        for write in self.writes:
            if not write.is_stored and (write.host, write.epoch) == (host, epoch):
                yield write

    def check(self, words: Iterable[str], where: str) -> None:
        """Compare what is read with what was acknowledged.

        Everything that was is there, but what was only on a host that was declared lost; of that
        a prefix. Writes are in the order of their epochs, and within each as they were made.

        :raises HistoryError: when it is not so.
        """
        by_word = {write.word: write for write in self.writes}
        found = [by_word[word] for word in words if word in by_word]
        present = {write.number for write in found}
        for write in self.writes:
            is_needed = write.is_stored or write.epoch not in self.lost_epochs
            if is_needed and write.number not in present:
                raise HistoryError(f"{where} lacks {write}")
        order = [(write.epoch, write.number) for write in found]
        if order != sorted(order):
            raise HistoryError(f"{where} has writes in the order {order}")
        by_epoch = sorted(self.writes, key=lambda write: write.epoch)
        for epoch, group in itertools.groupby(by_epoch, key=lambda write: write.epoch):
            is_there = [write.number in present for write in group]
            if is_there != sorted(is_there, reverse=True):
                raise HistoryError(f"{where} has a hole in what was written in epoch {epoch}")
