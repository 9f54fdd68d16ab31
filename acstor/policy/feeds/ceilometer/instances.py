"""Rates of instances, which cause a host's traffic, from Ceilometer's cumulative meters.

libvirt tells Ceilometer totals only, and there is no transformer of rates any more, so rates are
computed here, between two samples of one network interface of an instance.
"""

import collections
import time
from collections.abc import Callable
from dataclasses import dataclass

from acstor.policy.feeds.ceilometer.lag import LagWatch
from acstor.policy.feeds.ceilometer.samples import MeterSample, text_of

SERIES_MAX = 131_072
"""Meters of instances' interfaces that are remembered; the one not heard of longest goes first."""
GAP_MAX = 3600.0
"""Seconds between two samples beyond which their mean says nothing of now."""
EXPIRY = 900.0
"""Seconds after which a rate is shown no more: three of Ceilometer's default intervals."""
INTERVAL_MIN = 0.5
FASTEST = 12.5e9
"""Bytes per second beyond which a rate is a fault: 100 Gbit/s."""


@dataclass(frozen=True)
class InstanceRate:
    """Traffic of one instance, bytes per second."""

    instance: str
    name: str
    project: str
    received: float
    sent: float

    @property
    def total(self) -> float:
        """Both directions together."""
        return self.received + self.sent


@dataclass(frozen=True)
class _Point:
    """The last sample of a series, and the rate up to it."""

    sample: MeterSample
    host: str
    noted_at: float
    rate: float | None = None


class InstanceTraffic:
    """Rates of instances by host. Not thread-safe.

    :param clock: POSIX seconds.
    :param steady_clock: monotonic seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lags = LagWatch(clock, steady_clock)
        self._series: collections.OrderedDict[tuple[str, str], _Point] = collections.OrderedDict()

    def note(self, sample: MeterSample) -> str:
        """Note a sample; return what became of it.

        ``instance``: it gave a rate; ``first``; ``reset``: the counter began anew (the instance
        was started again, or moved to another host); ``late``, ``future``, ``old``, ``absurd``;
        ``malformed``: it does not say whose it is.
        """
        host = text_of(sample.metadata, "instance_host").lower()
        if not host or not text_of(sample.metadata, "instance_id"):
            return "malformed"
        problem = self._lags.problem(host, sample.at)
        if problem is not None:
            return problem
        key = (sample.meter, sample.resource)
        before = self._series.get(key)
        outcome, rate = self._rated(before, sample, host)
        if outcome == "old":
            return outcome
        self._series[key] = _Point(sample, host, self._clock(), rate)
        self._series.move_to_end(key)
        if len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)
        return outcome

    def top(self, count: int) -> dict[str, list[InstanceRate]]:
        """Return by host the instances that move most, those of most first."""
        oldest = self._clock() - EXPIRY
        for key in [key for key, point in self._series.items() if point.noted_at < oldest]:
            del self._series[key]
        rates: dict[tuple[str, str], InstanceRate] = {}
        for point in self._series.values():
            if point.rate is None:
                continue
            metadata = point.sample.metadata
            instance = text_of(metadata, "instance_id")
            former = rates.get((point.host, instance))
            received = point.rate if point.sample.is_incoming else 0.0
            sent = 0.0 if point.sample.is_incoming else point.rate
            rates[point.host, instance] = InstanceRate(
                instance,
                text_of(metadata, "display_name"),
                point.sample.project,
                received + (former.received if former else 0.0),
                sent + (former.sent if former else 0.0),
            )
        by_host: dict[str, list[InstanceRate]] = {}
        for (host, _), rate in rates.items():
            by_host.setdefault(host, []).append(rate)
        return {
            host: sorted(found, key=lambda each: (-each.total, each.instance))[:count]
            for host, found in sorted(by_host.items())
        }

    def _rated(
        self, before: _Point | None, sample: MeterSample, host: str
    ) -> tuple[str, float | None]:
        if before is None:
            return "first", None
        former = before.sample
        if sample.at <= former.at:
            return "old", None
        seconds = sample.at - former.at
        if sample.steady is not None and former.steady is not None:
            if sample.steady <= former.steady:
                return "reset", None  # the host was started again
            seconds = sample.steady - former.steady
        if seconds < INTERVAL_MIN:
            return "old", None
        if sample.volume < former.volume or host != before.host or seconds > GAP_MAX:
            return "reset", None
        rate = (sample.volume - former.volume) / seconds
        return ("absurd", None) if rate > FASTEST else ("instance", rate)
