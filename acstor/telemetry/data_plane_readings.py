"""Readings of a data plane's metrics: its traffic, load, disk and peers.

The metrics are counters since the data plane was started; :class:`LoadMeter` turns two readings
into what happened between them.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.openmetrics import parser

from acstor import exception
from acstor.telemetry import host_state_details
from acstor.telemetry.host_state_details import DiskHealth, PeerLatency
from acstor.telemetry.traffic import MovedBytes

_FETCHED = "acstor_peer_fetch_bytes_total"
_SERVED = "acstor_serve_bytes_total"
_FETCHED_SAVED = "acstor_peer_client_saved_bytes_total"
_SERVED_SAVED = "acstor_peer_server_saved_bytes_total"
_FROM_ORIGIN = "acstor_origin_bytes_total"
_INFLIGHT = "acstor_serves_inflight"
_SERVES = "acstor_serves_total"
_READ_CHUNKS = "acstor_read_chunks_total"
_READ_ERRORS = "acstor_store_read_errors_total"
_INSERTS = "acstor_inserts_total"
_NEEDED = (
    *(name.removesuffix("_total") for name in (_FETCHED, _SERVED, _FETCHED_SAVED, _SERVED_SAVED)),
    *(name.removesuffix("_total") for name in (_FROM_ORIGIN, _INFLIGHT, _SERVES, _READ_CHUNKS)),
    *(name.removesuffix("_total") for name in (_READ_ERRORS, _INSERTS)),
)
"""Beginnings of the names of the metrics that are read."""
_ABOUT = re.compile(r"(?:# (?:HELP|TYPE|UNIT) )?[a-zA-Z_:][a-zA-Z0-9_:]*")
"""Beginning of a line about a metric."""


@dataclass(frozen=True)
class Reading:
    """Metrics of a data plane at one moment."""

    moved: MovedBytes = field(default_factory=MovedBytes)
    inflight: float = 0.0
    """Requests of peers that were being answered."""
    refused: float = 0.0
    """Requests of peers refused for load."""
    disk_errors: float = 0.0
    """Reads and writes of the chunk store that failed."""
    chunks: Mapping[str, float] = field(default_factory=dict)
    """Chunks that guests read, by where they came from."""


@dataclass(frozen=True)
class DataPlaneLoad:
    """Load, disk errors, hits and peers of a data plane between two readings."""

    load: float
    """0 to 1: part of the requests that it answers at a time; 1 where it refused some."""
    disk: DiskHealth
    hits: Mapping[str, float] = field(default_factory=dict)
    """Part of the chunks that guests read, by where they came from; empty: they read none."""
    peers: Mapping[str, PeerLatency] = field(default_factory=dict)
    """Latencies of recent fetches by peer, those fetched most from first."""


def read(metrics_text: str, *, is_origin_remote: bool) -> Reading | None:
    """Return what the metrics say; None: they are not those of a data plane.

    :param metrics_text: in the OpenMetrics format; others may be among them.
    :param is_origin_remote: whether reads of the origin go over the network.
    :raises InvalidError: when the text is malformed.
    """
    totals = dict.fromkeys(
        (_FETCHED, _FETCHED_SAVED, _SERVED, _SERVED_SAVED, _FROM_ORIGIN, _INFLIGHT, _READ_ERRORS),
        0.0,
    )
    refused = failed = 0.0
    chunks: dict[str, float] = {}
    is_there = False
    text = _needed_lines(metrics_text)
    try:
        for family in parser.text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
            for sample in family.samples:
                if sample.name in totals:
                    is_there = True
                    totals[sample.name] += sample.value
                elif sample.name == _SERVES and sample.labels["outcome"] == "overloaded":
                    refused += sample.value
                elif sample.name == _INSERTS and sample.labels["outcome"] == "failed":
                    failed += sample.value
                elif sample.name == _READ_CHUNKS:
                    chunks[sample.labels["tier"]] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise exception.InvalidError(f"metrics of the data plane: {error}") from error
    if not is_there:
        return None
    from_origin = totals[_FROM_ORIGIN] if is_origin_remote else 0.0
    # Chunks are counted whole; compressed ones were smaller on the wire.
    fetched = max(0.0, totals[_FETCHED] - totals[_FETCHED_SAVED])
    served = max(0.0, totals[_SERVED] - totals[_SERVED_SAVED])
    return Reading(
        MovedBytes(fetched + from_origin, served),
        totals[_INFLIGHT],
        refused,
        totals[_READ_ERRORS] + failed,
        chunks,
    )


def _needed_lines(metrics_text: str) -> str:
    """Return the text without the metrics that are not read.

    The parser takes milliseconds for all that a data plane tells, every few seconds.
    """
    needed = []
    for line in metrics_text.rstrip().removesuffix("# EOF").rstrip().split("\n"):
        found = _ABOUT.match(line)
        name = found.group().rpartition(" ")[2] if found is not None else None
        if name is None or name.startswith(_NEEDED):
            needed.append(line)
    return "".join(f"{line}\n" for line in needed) + "# EOF\n"


def peers_of(status: Mapping[str, Any]) -> dict[str, PeerLatency]:
    """Return how long fetches from which peers took lately.

    :param status: of a data plane; one of an older release does not tell.
    :raises InvalidError: when it is malformed.
    """
    try:
        message = {
            str(each["name"]).lower(): {"p50_ms": each["p50_ms"], "p99_ms": each["p99_ms"]}
            for each in list(status.get("peers") or ())[: host_state_details.PEERS_MAX]
        }
    except (TypeError, KeyError) as error:
        raise exception.InvalidError(f"peers in the status of the data plane: {error!r}") from error
    return host_state_details.peers_from_message(message)


class LoadMeter:
    """Turns successive readings into how the data plane was meanwhile.

    The disk is taken to be well while no access to the chunk store fails. What the disk says of
    itself (SMART, wear) is the business of :mod:`acstor.telemetry.disk_watch`.

    :param requests_max: requests of peers that the data plane answers at a time.
    """

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._last = Reading()

    def sample(self, reading: Reading) -> DataPlaneLoad:
        """Return how the data plane was since the last reading, or since it was started.

        A data plane that was restarted has counted from zero.
        """
        before, self._last = self._last, reading
        share = min(1.0, max(0.0, reading.inflight / self._requests_max))
        grown = {
            tier: _grown(before.chunks.get(tier, 0.0), count)
            for tier, count in reading.chunks.items()
        }
        total = math.fsum(grown.values())
        return DataPlaneLoad(
            1.0 if _grown(before.refused, reading.refused) > 0 else share,
            DiskHealth(_grown(before.disk_errors, reading.disk_errors) == 0),
            {tier: count / total for tier, count in grown.items()} if total > 0 else {},
        )


def _grown(before: float, after: float) -> float:
    return after - before if after >= before else after
