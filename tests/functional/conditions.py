"""Waiting for conditions instead of for time."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_POLL_SECONDS = 0.01


def wait_for(what: str, probe: Callable[[], Result | None], timeout: float = 20.0) -> Result:
    """Return the first true result of ``probe``; fail with ``what`` when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        result = probe()
        if result:
            return result
        assert time.monotonic() < deadline, f"not in {timeout} s: {what}"
        time.sleep(_POLL_SECONDS)
