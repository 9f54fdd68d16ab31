"""What agents measured of their hosts' networks, read from their metrics."""

import ipaddress
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from acstor.agent.member import Member
from acstor.agent.metrics import EXTRA_TRAFFIC, LINK_SPEED, STATE
from acstor.cli import samples
from acstor.cli.samples import Sample


@dataclass(frozen=True)
class HostTraffic:
    """Of one host; rates in bytes per second; None: not known."""

    agent_state: str | None = None
    extra_in: float | None = None
    extra_out: float | None = None
    link_bytes_per_s: float | None = None
    problem: str | None = None
    """Why nothing is known."""


def fetch_all(members: Iterable[Member], own_host: str) -> dict[str, HostTraffic]:
    """Return what the hosts measured last, by name; hosts that cannot be asked say why.

    :param own_host: name of this host. Another one whose metrics listen on a loopback address
        cannot be asked: its address leads to this one's.
    """
    members = list(members)
    reachable = [member for member in members if _is_reachable(member, own_host)]
    found = {name: read(sample) for name, sample in samples.fetch_all(reachable).items()}
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

    return HostTraffic(
        agent_state=states[0] if states else None,
        extra_in=known(EXTRA_TRAFFIC, direction="in"),
        extra_out=known(EXTRA_TRAFFIC, direction="out"),
        link_bytes_per_s=known(LINK_SPEED),
    )


def _is_reachable(member: Member, own_host: str) -> bool:
    if member.name == own_host:
        return True
    address = member.metrics_address.rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return address != "localhost"
