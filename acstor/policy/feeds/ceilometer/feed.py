"""Loads of hosts from Ceilometer's samples, and the instances that cause the traffic.

Samples come by HTTP (:mod:`acstor.policy.feeds.ceilometer.http`) or over the notification bus
(:mod:`acstor.policy.feeds.ceilometer.bus`), or both: doubles are told by their readings.
"""

import collections
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from acstor import exception
from acstor.policy.feeds.ceilometer import traffic_file
from acstor.policy.feeds.ceilometer.hosts import HostReadings
from acstor.policy.feeds.ceilometer.instances import InstanceTraffic
from acstor.policy.feeds.ceilometer.samples import MeterSample
from acstor.policy.load_samples import CEILOMETER, LoadSamples, Sample

LOG = logging.getLogger(__name__)

WRITE_INTERVAL = 5.0
"""Seconds between two writes of the file about instances."""
COMPLAINT_INTERVAL = 600.0
"""Seconds between two log lines about samples that are dropped for the same reason."""
_WELL = frozenset({"taken", "clamped", "part", "first", "instance", "reset", "ignored", "old"})

Parse = Callable[[object], MeterSample | None]


class CeilometerSamples:
    """Takes samples from whatever receiver; thread-safe.

    :param traffic_path: of the file about instances.
    :param clock: POSIX seconds.
    """

    def __init__(
        self, load_samples: LoadSamples, traffic_path: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._load_samples = load_samples
        self._path = traffic_path
        self._clock = clock
        self._lock = threading.Lock()  # of all below
        self._hosts = HostReadings(clock)
        self._instances = InstanceTraffic(clock)
        self._written_at: float | None = None
        self._complained: dict[str, float] = {}

    def take(self, messages: Sequence[object], parse: Parse) -> Mapping[str, int]:
        """Take samples, as they came; return how many had which outcome. Raises nothing.

        Each outcome is counted in the load samples.
        """
        outcomes: collections.Counter[str] = collections.Counter()
        with self._lock:
            for message in messages:
                outcomes[self._take(message, parse)] += 1
            if outcomes["instance"]:
                self._write()
        return outcomes

    def refuse(self, why: str) -> None:
        """Count samples that were not let in: ``unauthenticated``, ``unsigned``, ``malformed``."""
        self._load_samples.count(CEILOMETER, why)
        with self._lock:
            self._complain(why, "")

    def _take(self, message: object, parse: Parse) -> str:
        detail = ""
        try:
            sample = parse(message)
            found = self._noted(sample) if sample is not None else "ignored"
            detail = f"{sample.meter} of {sample.resource}" if sample is not None else ""
        except exception.InvalidError as error:
            found, detail = "malformed", str(error)
        if isinstance(found, Sample):
            outcome = self._load_samples.note(found)
        else:
            outcome = found
            self._load_samples.count(CEILOMETER, outcome)
        if outcome not in _WELL:
            self._complain(outcome, detail)
        return outcome

    def _noted(self, sample: MeterSample) -> Sample | str:
        return self._hosts.note(sample) if sample.is_of_host else self._instances.note(sample)

    def _write(self) -> None:
        now = self._clock()
        if self._written_at is not None and 0 <= now - self._written_at < WRITE_INTERVAL:
            return
        self._written_at = now
        try:
            found = self._instances.top(traffic_file.INSTANCES_MAX)
            traffic_file.write(self._path, found, int(now * 1000))
        except OSError as error:
            self._complain("unwritten", f"{self._path}: {error.strerror}")

    def _complain(self, kind: str, detail: str) -> None:
        now = self._clock()
        if now - self._complained.get(kind, float("-inf")) >= COMPLAINT_INTERVAL:
            self._complained[kind] = now
            LOG.warning("Ceilometer's samples: %s%s", kind, f": {detail}" if detail else "")
