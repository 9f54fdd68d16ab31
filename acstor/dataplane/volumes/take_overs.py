"""Counts of what happens to the volumes of a host."""

import threading


class TakeOvers:
    """Counts of volumes that this process took over from owners that had not given them back."""

    def __init__(self) -> None:
        self._counts = {"complete": 0, "rolled_back": 0}
        self._lock = threading.Lock()

    def count(self, *, is_complete: bool) -> None:
        """Count one.

        :param is_complete: whether the volume's durability lets nothing be missing.
        """
        with self._lock:
            self._counts["complete" if is_complete else "rolled_back"] += 1

    def counts(self) -> dict[str, int]:
        """Return how many there were of each outcome."""
        with self._lock:
            return dict(self._counts)
