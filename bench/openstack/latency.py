"""Latency of the cloud's APIs under other load."""

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

INTERVAL_S = 0.5


class LatencyProbe(threading.Thread):
    """Makes one call again and again, at most every half second, and keeps how long each took.

    A call that fails counts with its time, and is kept as a failure.
    """

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        super().__init__(name=f"probe-{name}", daemon=True)
        self.latencies_s: list[float] = []
        self.failures: list[str] = []
        self._call = call
        self._stopped = threading.Event()

    def run(self) -> None:
        """Call until stopped."""
        while not self._stopped.is_set():
            started = time.monotonic()
            try:
                self._call()
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            taken = time.monotonic() - started
            self.latencies_s.append(taken)
            self._stopped.wait(max(0.0, INTERVAL_S - taken))

    def stop(self) -> None:
        """Stop after the call under way."""
        self._stopped.set()
        self.join()


class Probes:
    """Several probes at once, by name."""

    def __init__(self, calls: Mapping[str, Callable[[], object]]) -> None:
        self.probes = {name: LatencyProbe(name, call) for name, call in calls.items()}

    def __enter__(self) -> Self:
        for probe in self.probes.values():
            probe.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for probe in self.probes.values():
            probe.stop()

    @property
    def failures(self) -> list[str]:
        """Messages of the failed requests."""
        return [failure for probe in self.probes.values() for failure in probe.failures]


def quantile(values: list[float], share: float) -> float:
    """Return a quantile, 0 < share < 1, of at least one value."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
