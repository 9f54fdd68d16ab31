"""Metrics of a host's volumes together; the page is :doc:`/admin/metrics-volume-hosts`.

Imported when they are asked for first: guests wait for the start of a data plane, and its imports
are part of that.
"""

from collections.abc import Iterator, Sequence

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition
from prometheus_client.registry import Collector

from acstor.dataplane.volumes.logs.aside import LogAside
from acstor.dataplane.volumes.take_overs import TakeOvers

TAKE_OVERS = "acstor_volume_take_overs"
LOGS_ASIDE = "acstor_volume_logs_aside"
LOGS_ASIDE_BYTES = "acstor_volume_logs_aside_bytes"


def text(take_overs: TakeOvers, aside: Sequence[LogAside]) -> str:
    """Return the metrics in the OpenMetrics text format, without its end."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(_Collector(take_overs, aside))
    found: bytes = exposition.generate_latest(registry)  # type: ignore[no-untyped-call]
    return found.decode().removesuffix("# EOF\n")


class _Collector(Collector):
    def __init__(self, take_overs: TakeOvers, aside: Sequence[LogAside]) -> None:
        self._take_overs = take_overs
        self._aside = aside

    def collect(self) -> Iterator[Metric]:
        taken = CounterMetricFamily(
            TAKE_OVERS,
            "Volumes taken over from an owner that had not given them back.",
            labels=["outcome"],
        )
        for outcome, count in self._take_overs.counts().items():
            taken.add_metric([outcome], count)
        yield taken
        yield GaugeMetricFamily(
            LOGS_ASIDE, "Local logs that were put aside.", value=len(self._aside)
        )
        yield GaugeMetricFamily(
            LOGS_ASIDE_BYTES,
            "Bytes that they take on the disk.",
            value=sum(one.bytes for one in self._aside),
        )
