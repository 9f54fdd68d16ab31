"""A coordination cluster of several endpoints, over the embedded backend, with faults."""

import collections
from collections.abc import Callable
from typing import Any

from tooz import coordination

from acstor import exception


class CoordinationCluster:
    """Endpoints that serve the same members and locks, and fail one by one.

    Takes the place of :func:`acstor.cluster.membership.connect`.

    :param connect: the real one.
    :param url: of the embedded backend, which all endpoints have in common.
    """

    def __init__(self, connect: Callable[[str, str], Any], url: str) -> None:
        self._connect = connect
        self._url = url
        self.down: set[str] = set()
        """URLs of the endpoints that answer nothing."""
        self.attempts: collections.Counter[str] = collections.Counter()
        """Connections that were tried, by URL."""
        self.stops = 0
        """Coordinators that were told to stop."""

    def connect(self, url: str, member_id: str) -> Any:
        """Return a coordinator that works as long as its endpoint does."""
        self.attempts[url] += 1
        if url in self.down:
            raise exception.UnavailableError(f"coordination backend {url} is down")
        return FaultyCoordinator(self._connect(self._url, member_id), self, url)

    def check(self, url: str) -> None:
        """Raise what a client raises whose endpoint is down."""
        if url in self.down:
            raise coordination.ToozConnectionError(f"{url} is down")


class FaultyCoordinator:
    """A coordinator, or a lock of it, whose calls fail while its endpoint is down."""

    def __init__(self, inner: Any, cluster: CoordinationCluster, url: str) -> None:
        self._inner = inner
        self._cluster = cluster
        self._url = url

    def get_lock(self, name: bytes) -> "FaultyCoordinator":
        """Return a lock that fails likewise."""
        return FaultyCoordinator(self._inner.get_lock(name), self._cluster, self._url)

    def stop(self) -> None:
        """Leave all groups."""
        self._cluster.stops += 1
        self._cluster.check(self._url)
        self._inner.stop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._cluster.check(self._url)
            return found(*arguments, **named)

        return call
