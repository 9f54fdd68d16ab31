"""Metrics of a host's volumes together; the page is :doc:`/admin/metrics-volume-hosts`."""

import threading
from collections.abc import Sequence

from acstor.dataplane.volumes.logs.aside import LogAside

TAKE_OVERS = "acstor_volume_take_overs"
LOGS_ASIDE = "acstor_volume_logs_aside"
LOGS_ASIDE_BYTES = "acstor_volume_logs_aside_bytes"


class TakeOvers:
    """How often this process took a volume over from an owner that had not given it back."""

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


def text(take_overs: TakeOvers, aside: Sequence[LogAside]) -> str:
    """Return the metrics in the OpenMetrics text format, without its end."""
    lines = [
        f"# HELP {TAKE_OVERS} Volumes taken over from an owner that had not given them back.",
        f"# TYPE {TAKE_OVERS} counter",
    ]
    for outcome, count in take_overs.counts().items():
        lines.append(f'{TAKE_OVERS}_total{{outcome="{outcome}"}} {count}')
    lines += [
        f"# HELP {LOGS_ASIDE} Local logs that were put aside.",
        f"# TYPE {LOGS_ASIDE} gauge",
        f"{LOGS_ASIDE} {len(aside)}",
        f"# HELP {LOGS_ASIDE_BYTES} Bytes that they take on the disk.",
        f"# TYPE {LOGS_ASIDE_BYTES} gauge",
        f"{LOGS_ASIDE_BYTES} {sum(one.bytes for one in aside)}",
    ]
    return "\n".join(lines) + "\n"
