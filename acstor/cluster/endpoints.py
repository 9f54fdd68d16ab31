"""Round-robin choice among the endpoints of a coordination cluster: the next after each failure."""

import logging
from collections.abc import Sequence

from acstor.conf.backend_urls import without_secret

LOG = logging.getLogger(__name__)


class Endpoints:
    """The URLs of one cluster, in the order in which they are tried, round and round.

    All of them serve the same members and locks, so whoever goes to the next one goes on as the
    same member. How soon is the caller's to say: its back-off counts attempts, not endpoints.

    :param urls: at least one, as :meth:`~acstor.cluster.membership.CoordinationSettings.urls` has
        them.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)
        self._index = 0

    @property
    def current(self) -> str:
        """The one to use."""
        return self._urls[self._index]

    @property
    def is_alone(self) -> bool:
        """True if there is no other."""
        return len(self._urls) == 1

    def fail(self) -> None:
        """Take the next one: the current one could not be reached, or an operation failed."""
        if self.is_alone:
            return
        failed = self.current
        self._index = (self._index + 1) % len(self._urls)
        LOG.info(
            "coordination endpoint %s failed, %s is next",
            without_secret(failed),
            without_secret(self.current),
        )
