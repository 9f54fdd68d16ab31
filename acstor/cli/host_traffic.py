"""Measurements of hosts by their agents: network, disk, peers; read from the agents' metrics."""

import ipaddress
import math
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from acstor.agent.metrics import (
    DISK_HEALTHY,
    DISK_WEAR,
    EXTRA_TRAFFIC,
    LINK_SPEED,
    PEER_LATENCY,
    STATE,
)
from acstor.cli import samples
from acstor.cli.samples import Sample
from acstor.cluster.member import Member
from acstor.telemetry.host_state_details import DiskHealth, PeerLatency


@dataclass(frozen=True)
class HostTraffic:
    """Measurements of one host; rates in bytes per second; None: not known."""

    agent_state: str | None = None
    extra_in: float | None = None
    extra_out: float | None = None
    link_bytes_per_s: float | None = None
    problem: str | None = None
    """Reason for which nothing is known."""
    disk: DiskHealth | None = None
    """Of the chunk store; None: the data plane is not up, or the agent is too old to tell."""
    peers: Mapping[str, PeerLatency] = field(default_factory=dict)
    """Of the peers that the host fetched most from, the slowest first."""


def fetch_all(
    members: Iterable[Member], own_host: str, tls: ssl.SSLContext | None = None
) -> dict[str, HostTraffic]:
    """Return what the hosts measured last, by name; hosts that cannot be asked say why.

    :param own_host: name of this host. Another one whose metrics listen on a loopback address
        cannot be asked: its address leads to this one's.
    :param tls: of the metrics' endpoints; None: they are read in the clear.
    """
    members = list(members)
    reachable = [member for member in members if _is_reachable(member, own_host)]
    found = {name: read(sample) for name, sample in samples.fetch_all(reachable, tls).items()}
    for member in members:
        found.setdefault(
            member.name, HostTraffic(problem="[agent] metrics_address is local to that host")
        )
    return found


def read(sample: Sample) -> HostTraffic:
    """Return what one host's metrics say."""
    if sample.problem is not None:
        return HostTraffic(problem=sample.problem)
    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float] = sample.values
    states = [
        dict(labels).get("state") for (name, labels), on in values.items() if name == STATE and on
    ]

    def known(name: str, **labels: str) -> float | None:
        value = values.get((name, frozenset(labels.items())), math.nan)
        return value if math.isfinite(value) else None

    is_healthy = known(DISK_HEALTHY)
    return HostTraffic(
        agent_state=states[0] if states else None,
        extra_in=known(EXTRA_TRAFFIC, direction="in"),
        extra_out=known(EXTRA_TRAFFIC, direction="out"),
        link_bytes_per_s=known(LINK_SPEED),
        disk=None if is_healthy is None else DiskHealth(is_healthy > 0, known(DISK_WEAR)),
        peers=_peers(values),
    )


def _peers(
    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float],
) -> dict[str, PeerLatency]:
    milliseconds: dict[str, dict[str, float]] = {}
    for (name, labels), seconds in values.items():
        if name == PEER_LATENCY and math.isfinite(seconds):
            told = dict(labels)
            quantiles = milliseconds.setdefault(told.get("peer", ""), {})
            quantiles[told.get("quantile", "")] = 1000 * seconds
    found = {
        peer: PeerLatency(quantiles["0.5"], quantiles["0.99"])
        for peer, quantiles in milliseconds.items()
        if peer and {"0.5", "0.99"} <= quantiles.keys()
    }
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].p99_ms, pair[0])))


def _is_reachable(member: Member, own_host: str) -> bool:
    if member.name == own_host:
        return True
    address = member.metrics_address.rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return address != "localhost"
