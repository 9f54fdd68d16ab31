"""One fold of a host at a time: what is spread over time gives way to what is wanted at once."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.dataplane.volumes.local_volume import LocalVolume


class FoldTurns:
    """The turns of a host's folds; taken before any lock of a volume.

    :param set_unwanted: has the fold of a volume that is under way given up, or no longer.
    """

    def __init__(self, set_unwanted: Callable[[LocalVolume, bool], None]) -> None:
        self._set_unwanted = set_unwanted
        self._changed = threading.Condition()  # of all below
        self._is_folding = False
        self._spread: LocalVolume | None = None
        self._hurried = 0

    @contextlib.contextmanager
    def over_time(self, local: LocalVolume) -> Iterator[None]:
        """Take a turn that is given up for others; as long as any of those waits there is none.

        ``has_given_way`` of the volume is set then: next time it should not do that again, or it
        would never be folded beside a volume that is folded again and again.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._is_folding and not self._hurried)
            self._is_folding, self._spread = True, local
        try:
            yield
        finally:
            self._end()

    @contextlib.contextmanager
    def at_once(self, timeout_s: float | None = None) -> Iterator[None]:
        """Take a turn as soon as a fold that is under way has ended, or has given way.

        :param timeout_s: how long to wait for that; None: as long as it takes.
        :raises OverloadedError: when it takes longer.
        """
        with self._changed:
            is_free = self._wait_hurried(timeout_s)
            if not is_free:
                raise exception.OverloadedError("another volume of this host is being folded")
            self._is_folding = True
        try:
            yield
        finally:
            self._end()

    def _wait_hurried(self, timeout_s: float | None) -> bool:
        spread = self._spread
        self._hurried += 1
        if spread is not None:
            spread.has_given_way = True
            self._set_unwanted(spread, True)
        try:
            return self._changed.wait_for(lambda: not self._is_folding, timeout_s)
        finally:
            self._hurried -= 1
            self._changed.notify_all()
            if spread is not None:
                self._set_unwanted(spread, False)

    def _end(self) -> None:
        with self._changed:
            self._is_folding, self._spread = False, None
            self._changed.notify_all()
