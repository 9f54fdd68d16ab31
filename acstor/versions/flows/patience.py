"""Patience of flows with hosts and services that are away for a while."""

from collections.abc import Callable
from typing import TypeVar

from acstor import exception
from acstor.versions.flows.work import Work

POLL_SECONDS = 2.0
"""Seconds between two questions to a host."""
SILENCE_SECONDS = 600.0
"""Seconds for which a host may be silent before it is given up: it may restart."""

Found = TypeVar("Found")


def patiently(work: Work, ask: Callable[[], Found], seconds: float = SILENCE_SECONDS) -> Found:
    """Return an answer; a service that is away is asked again for a while.

    :param seconds: for which it is asked again.
    :raises UnavailableError: when it stays away.
    """
    end = work.clock() + seconds
    while True:
        try:
            return ask()
        except exception.AcstorError as error:
            if not error.is_transient or work.clock() >= end:
                raise
        work.wait(POLL_SECONDS)
