"""One process of a host changes links: the agent, or ``acstor links remove``."""

import os

from oslo_concurrency import lockutils

from acstor import exception

LOCK_FILE = "image-links.lock"


class OnlyLinker:
    """Makes sure that one process of a host changes links.

    :param state_path: ``[DEFAULT] state_path``.
    """

    def __init__(self, state_path: str) -> None:
        directory = os.path.join(state_path, "agent")
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._lock = lockutils.InterProcessLock(os.path.join(directory, LOCK_FILE))
        self._is_held = False

    def take(self) -> None:
        """Become it, or stay it.

        :raises FencedError: when another process is.
        """
        if not self._is_held and not self._lock.acquire(blocking=False):
            raise exception.FencedError(
                "another process of this host looks after the image links",
                hint="stop acstor-agent first; if it is not that, wait for 'acstor links remove'",
            )
        self._is_held = True

    def give_up(self) -> None:
        """Be it no more."""
        if self._is_held:
            self._lock.release()
            self._is_held = False
