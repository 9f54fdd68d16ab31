"""A snapshot whose calls are repeated, a bounded number of times, while the cluster is away."""

import functools
import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

from acstor import exception
from acstor.repository.source.rbd import base
from acstor.repository.source.rbd.data_ranges import DataRanges

ATTEMPTS_MAX = 5
"""Most attempts of one call; each has the deadline of the connection."""
WAIT_SECONDS_INITIAL = 0.1
WAIT_SECONDS_MAX = 5.0

Answer = TypeVar("Answer")


class RetryingSnapshot(base.BlockSnapshot):
    """Repeats what failed with a transient error, with full jitter.

    :param inner: the snapshot that does the work.
    :param sleep: how to wait; a test may put its own.
    """

    def __init__(
        self, inner: base.BlockSnapshot, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Wrap ``inner``."""

        def wait(seconds: float) -> None:
            sleep(seconds)

        self.inner = inner
        self.name = inner.name
        self.size_bytes = inner.size_bytes
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_transient),
            stop=tenacity.stop_after_attempt(ATTEMPTS_MAX),
            wait=tenacity.wait_random_exponential(WAIT_SECONDS_INITIAL, WAIT_SECONDS_MAX),
            sleep=wait,
            reraise=True,
        )

    def list_data(self) -> DataRanges:
        """Return the ranges that may hold data."""
        return self._repeat(self.inner.list_data)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the snapshot."""
        return self._repeat(functools.partial(self.inner.read, offset, size))

    def is_there(self) -> bool:
        """Return whether it is there."""
        return self._repeat(self.inner.is_there)

    def close(self) -> None:
        """Close the snapshot that does the work."""
        self.inner.close()

    def _repeat(self, call: Callable[[], Answer]) -> Answer:
        return self._retrying.copy()(call)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, exception.AcstorError) and error.is_transient
