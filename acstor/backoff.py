"""Delays between attempts that fail, the same in all services."""

import random
from dataclasses import dataclass

_EXPONENT_MAX = 30
"""Failures are not bounded, and 2**1000 is no float."""


@dataclass(frozen=True)
class BackOff:
    """Delays that double from failure to failure, up to the longest one.

    Of each delay a random part is left out, so that many who failed together do not try again
    together.
    """

    first: float
    """Seconds after the first failure."""
    longest: float
    """Seconds after many failures."""
    shortest: float = 0.0
    """Seconds that are waited at least, whatever the random part is."""
    spread: float = 0.5
    """Part of a delay that may be left out, 0 to 1."""

    def bound(self, failures: int) -> float:
        """Return the seconds that are waited at most after so many failures in a row."""
        doublings = min(max(0, failures - 1), _EXPONENT_MAX)
        return max(self.shortest, min(self.longest, self.first * 2.0**doublings))

    def seconds(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        bound = self.bound(failures)
        return random.uniform(max(self.shortest, (1.0 - self.spread) * bound), bound)


def jittered(seconds: float, share: float = 0.1) -> float:
    """Return a delay of about ``seconds``: hosts that start together do not stay in step."""
    return seconds * random.uniform(1.0 - share, 1.0 + share)
