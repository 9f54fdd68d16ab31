"""The writers that judge a disk after a power cut notice each thing that may not be."""

import random

import pytest

from testbed.fixtures import stamped_writers
from testbed.fixtures.stamped_writers import SECTOR, StampedWriters

SIZE = 1 << 20
COUNT = 2
HALF = SIZE // COUNT


class MemoryConnection:
    """A connection to a disk in memory that keeps every state it has had."""

    def __init__(self) -> None:
        self.states = [bytes(SIZE)]
        self.flushed = 0

    def write(self, offset: int, data: memoryview) -> None:
        """Write; a new state."""
        state = bytearray(self.states[-1])
        state[offset : offset + len(data)] = data
        self.states.append(bytes(state))

    def flush(self) -> None:
        """Note which state was flushed last."""
        self.flushed = len(self.states) - 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> MemoryConnection:
    monkeypatch.setattr(stamped_writers, "ZEROES_SHARE", 0.0)
    return MemoryConnection()


def written(disk: MemoryConnection, requests: int = 60) -> StampedWriters:
    """Return writers that have taken turns, so that the order of all writes is known."""
    writers = StampedWriters(bytes(SIZE), COUNT, seed=1)
    for number in range(requests):
        writers.request(disk, number % COUNT)
    assert 0 < disk.flushed < len(disk.states) - 1
    return writers


def test_each_state_since_the_last_flush_is_right(disk: MemoryConnection) -> None:
    written(disk)
    count = len(disk.states)
    for number in range(disk.flushed, count):
        again = MemoryConnection()
        assert written(again).check(again.states[number]) == count - 1 - number


def test_state_before_the_last_flush_is_found_out(disk: MemoryConnection) -> None:
    writers = written(disk)
    with pytest.raises(AssertionError, match="no state of the disk"):
        writers.check(disk.states[disk.flushed - 1])


def test_damaged_sector_is_found_out(disk: MemoryConnection) -> None:
    writers = written(disk)
    state = bytearray(disk.states[-1])
    place = random.Random(1).randrange(SIZE // SECTOR) * SECTOR
    state[place + 8] ^= 1
    with pytest.raises(AssertionError, match="no state of the disk"):
        writers.check(bytes(state))


def test_later_write_without_an_earlier_one_of_another_writer_is_found_out(
    disk: MemoryConnection,
) -> None:
    """Each half is a state that it has had; both together are not."""
    writers = written(disk)
    mixed = disk.states[disk.flushed][:HALF] + disk.states[-1][HALF:]
    with pytest.raises(AssertionError, match="is lost that was answered"):
        writers.check(mixed)


def test_writers_go_on_from_what_is_there(disk: MemoryConnection) -> None:
    writers = written(disk)
    writers.check(disk.states[disk.flushed])
    disk.states.append(disk.states[disk.flushed])
    for number in range(10):
        writers.request(disk, number % COUNT)
    assert writers.check(disk.states[-1]) == 0
