"""Backoff between the end of a process and the start of the next."""

DELAY_FIRST = 0.1
"""Seconds before the second restart in a row of a process that fails."""
DELAY_MAX = 5.0
"""Longest delay, seconds: what guests wait at most once the cause is gone."""
LIFE_MIN = 1.0
"""Seconds for which a process that became ready must have lived to count as healthy."""
LIFE_MIN_UNREADY = 10.0
"""Seconds for which a process that never says that it is ready must have lived to count as
healthy."""
AT_ONCE_MAX = 30
"""Restarts in a row without a delay of processes that were ready, however short they lived."""


class RestartBackoff:
    """Delays that double from failure to failure, and start anew after a healthy process.

    A process that was serving is replaced at once, however often it is killed: a delay would
    only add to what the guests wait. Only after ``AT_ONCE_MAX`` in a row that lived for less than
    ``LIFE_MIN`` is the cause taken to be with them. One that fails before it serves is restarted
    at once once, then after ``DELAY_FIRST``, twice that, and so on up to ``DELAY_MAX``.
    """

    def __init__(self) -> None:
        self._failures = 0

    def delay_after(self, lived: float, *, was_ready: bool) -> float:
        """Return the seconds to wait after a process that lived for ``lived`` seconds."""
        if lived >= (LIFE_MIN if was_ready else LIFE_MIN_UNREADY):
            self._failures = 0
            return 0.0
        self._failures += 1
        at_once = AT_ONCE_MAX if was_ready else 1
        if self._failures <= at_once:
            return 0.0
        # The exponent is bounded: failures are not, and 2**1000 is no float.
        return min(DELAY_MAX, DELAY_FIRST * float(2 ** min(self._failures - at_once - 1, 16)))
