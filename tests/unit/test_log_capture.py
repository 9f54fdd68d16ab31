"""The log that a test sees is its own."""

import logging
import threading
from collections.abc import Iterator
from typing import Self

import pytest

LOG = logging.getLogger(__name__)


class Complainer:
    """A thread that complains when it is told to, and ends with the block."""

    def __init__(self) -> None:
        self.told, self.said = threading.Semaphore(0), threading.Semaphore(0)
        self.is_ending = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.is_ending = True
        self.told.release()
        self.thread.join()

    def _run(self) -> None:
        while self.told.acquire() and not self.is_ending:
            LOG.warning("nobody asked")
            self.said.release()

    def complain(self) -> None:
        """Return when it has."""
        self.told.release()
        assert self.said.acquire(timeout=60)


@pytest.fixture(scope="module")
def earlier_thread() -> Iterator[Complainer]:
    with Complainer() as complainer:
        yield complainer


def test_first_test_leaves_a_thread(earlier_thread: Complainer) -> None:
    earlier_thread.complain()


def test_thread_of_an_earlier_test_is_not_heard(
    earlier_thread: Complainer, caplog: pytest.LogCaptureFixture
) -> None:
    earlier_thread.complain()
    assert caplog.records == []
    assert caplog.text == ""


def test_threads_of_the_test_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    with Complainer() as own:
        own.complain()
        LOG.warning("asked")
    assert [record.getMessage() for record in caplog.records] == ["nobody asked", "asked"]
