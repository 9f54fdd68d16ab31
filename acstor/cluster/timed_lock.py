"""A coordination lock that its holder takes for lost when it was not renewed in time."""

import logging
import time
from collections.abc import Callable
from typing import Any

LOG = logging.getLogger(__name__)

BACKEND_TICK = 1.0
"""Seconds by which a backend may give a lock away early: memcached counts whole ones."""


class TimedLock:
    """One lock, by whoever beats for it.

    The backend gives a lock to another when the beats of its holder fail to come. The drivers of
    etcd and memcached do not look: the next heartbeat of a holder that was stopped meanwhile would
    renew what is not its own. Where :attr:`is_overdue`, connect anew before the next heartbeat.

    :param lock: of a tooz coordinator.
    :param name: for the log.
    :param timeout: seconds that the backend keeps the lock after a heartbeat, by its own clock. To
        the holder it lasts :data:`BACKEND_TICK` less, but three quarters of that at least.
    :param clock: monotonic seconds.
    """

    def __init__(
        self, lock: Any, name: str, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = lock
        self._name = name
        self._lasts = max(timeout - BACKEND_TICK, 0.75 * timeout)
        self._clock = clock
        self._held_until = 0.0

    @property
    def is_held(self) -> bool:
        """True if it was held at the last beat, and that is no longer ago than it lasts."""
        return self._clock() < self._held_until

    @property
    def is_overdue(self) -> bool:
        """True if it was held and not renewed in time: it may be another's by now."""
        is_overdue = 0.0 < self._held_until <= self._clock()
        if is_overdue:
            LOG.warning("the lock of the %s was not renewed in time, it counts as lost", self._name)
        return is_overdue

    def hold(self, since: float) -> bool:
        """Take the lock if it is free; return whether it is held.

        :param since: when the heartbeat began that has renewed it, if it was held.
        :raises tooz.ToozError: when the backend fails.
        """
        is_held = bool(self._lock.acquired) or bool(self._lock.acquire(blocking=False))
        self._held_until = since + self._lasts if is_held else 0.0
        return is_held

    def release(self) -> None:
        """Give it back if it is held.

        :raises tooz.ToozError: when the backend fails. It times out by itself then, unless the
            coordinator goes on with its heartbeats.
        """
        self._held_until = 0.0
        if self._lock.acquired:
            self._lock.release()
