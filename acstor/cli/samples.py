"""Reading the hosts' metrics and turning two readings into rates."""

import concurrent.futures
import contextlib
import io
import math
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import parser

from acstor import exception
from acstor.cluster.member import Member

FETCH_TIMEOUT = 2.0
"""Seconds for one host's metrics."""
TEXT_BYTES_MAX = 16 << 20
HOSTS_AT_A_TIME_MAX = 32

LOCAL_TIERS = ("zero", "recent", "store")
TIERS = (*LOCAL_TIERS, "peer", "previous_owner", "origin")

_WAITS = "acstor_read_wait_seconds"
"""The one histogram that is shown."""

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class Sample:
    """The metrics of one host at one moment."""

    at: float
    """Monotonic seconds."""
    values: Values = field(default_factory=dict)
    problem: str | None = None
    """Reason for which there are none."""

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all series that have these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (found, pairs), value in self.values.items()
            if found == name and wanted <= pairs
        )

    def wait_buckets(self) -> dict[float, float]:
        """Return how many reads waited at most so many seconds, by that bound."""
        found: dict[float, float] = {}
        for (metric, pairs), value in self.values.items():
            if metric == f"{_WAITS}_bucket":
                bound = float(dict(pairs).get("le", "nan"))
                found[bound] = found.get(bound, 0.0) + value
        return found


@dataclass(frozen=True)
class Rates:
    """Rates of one host between two samples, per second where not said otherwise."""

    host: str
    problem: str | None = None
    reads: float = 0.0
    read_bytes: float = 0.0
    read_errors: float = 0.0
    tiers: Mapping[str, float] = field(default_factory=dict)
    """Share of the chunks read, by tier, 0 to 1."""
    origin_bytes: float = 0.0
    peer_bytes: float = 0.0
    """Fetched from peers."""
    serve_bytes: float = 0.0
    """Sent to peers."""
    wait_p50: float | None = None
    """Median time that a read waited for a chunk that was not on the host, seconds; None: none."""
    wait_p99: float | None = None
    store_used_bytes: float = 0.0
    store_capacity_bytes: float = 0.0
    ring_generation: int = 0


def parse(text: str) -> Values:
    """Return the series of a Prometheus or OpenMetrics text; what is malformed is left out.

    So are the buckets of other histograms, which most of the text is: a line takes some 12 us.
    """
    values: Values = {}
    for line in text.splitlines():
        if "_bucket{" in line and not line.startswith(_WAITS):
            continue
        # Each line alone: one that is malformed takes no other with it.
        with contextlib.suppress(ValueError):
            for family in parser.text_fd_to_metric_families(io.StringIO(line)):
                for sample in family.samples:
                    values[sample.name, frozenset(sample.labels.items())] = sample.value
    return values


def fetch(address: str, tls: ssl.SSLContext | None = None) -> Sample:
    """Return the metrics of the endpoint at ``ip:port``; never raises.

    :param tls: None: in the clear.
    """
    scheme = "http" if tls is None else "https"
    try:
        # The address comes from the membership; the scheme is fixed here.
        with urllib.request.urlopen(  # noqa: S310
            f"{scheme}://{address}/metrics", timeout=FETCH_TIMEOUT, context=tls
        ) as answer:
            text = answer.read(TEXT_BYTES_MAX).decode(errors="replace")
    except (OSError, ValueError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        return Sample(time.monotonic(), problem=exception.one_line(reason))
    return Sample(time.monotonic(), parse(text))


def fetch_all(members: Iterable[Member], tls: ssl.SSLContext | None = None) -> dict[str, Sample]:
    """Return the samples of all hosts, by name."""
    hosts = list(members)
    with concurrent.futures.ThreadPoolExecutor(HOSTS_AT_A_TIME_MAX) as pool:
        samples = pool.map(lambda member: fetch(member.metrics_address, tls), hosts)
        return {member.name: sample for member, sample in zip(hosts, samples, strict=True)}


def quantile(
    before: Mapping[float, float], after: Mapping[float, float], proportion: float
) -> float | None:
    """Return a quantile of what a histogram counted between two readings, or None for nothing.

    The value is interpolated within its bucket, as Prometheus' histogram_quantile does; in the
    last, unbounded bucket it is the highest bound.
    """
    counts = [(bound, after[bound] - before.get(bound, 0.0)) for bound in sorted(after)]
    if not counts or counts[-1][1] <= 0:
        return None
    wanted = proportion * counts[-1][1]
    lower, below = 0.0, 0.0
    for bound, count in counts:
        if count >= wanted and count > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        lower, below = bound, count
    return lower


def rates(host: str, before: Sample | None, after: Sample) -> Rates:
    """Return what a host did between two samples.

    A data plane that restarted in between has counted from zero again: its counts since then are
    taken.
    """
    if after.problem is not None:
        return Rates(host, problem=after.problem)
    if before is None or before.problem is not None:
        before = Sample(after.at, after.values)
    if after.total("acstor_reads_total") < before.total("acstor_reads_total"):
        before = Sample(before.at)
    seconds = max(after.at - before.at, 1e-9)

    def per_second(name: str, **labels: str) -> float:
        return max(0.0, after.total(name, **labels) - before.total(name, **labels)) / seconds

    chunks = {tier: per_second("acstor_read_chunks_total", tier=tier) for tier in TIERS}
    whole = sum(chunks.values())
    waits = before.wait_buckets(), after.wait_buckets()
    return Rates(
        host,
        reads=per_second("acstor_reads_total"),
        read_bytes=per_second("acstor_read_bytes_total"),
        read_errors=per_second("acstor_reads_total")
        - per_second("acstor_reads_total", result="ok"),
        tiers={tier: count / whole if whole else 0.0 for tier, count in chunks.items()},
        origin_bytes=per_second("acstor_origin_bytes_total"),
        peer_bytes=per_second("acstor_peer_fetch_bytes_total"),
        serve_bytes=per_second("acstor_serve_bytes_total"),
        wait_p50=quantile(*waits, 0.5),
        wait_p99=quantile(*waits, 0.99),
        store_used_bytes=after.total("acstor_store_used_bytes"),
        store_capacity_bytes=after.total("acstor_store_capacity_bytes"),
        ring_generation=int(after.total("acstor_ring_generation")),
    )
