"""Exchange of an image as it would be if every host of the ring took part."""

import uuid
from dataclasses import dataclass

from acstor import exception, oid
from acstor.native import Ring
from acstor.policy import plugins

CANDIDATES = 3
"""Candidates for the rendezvous host, as the data plane has it."""


@dataclass(frozen=True)
class Place:
    """One host's place."""

    host: str
    rack: str
    part: str
    """``rendezvous``, ``candidate`` or ``member``."""
    hears_of: str
    hops: int
    """Hosts that a hint goes through to it, itself included."""


def places(ring: Ring, disk_id: uuid.UUID, order: str, fan_out: int) -> list[Place]:
    """Return the places of all hosts, as if they had joined in the order of their names.

    :param order: plug-in of ``acstor.policy.neighbourhoods``.
    :raises UnsupportedError: when there is none of that name.
    :raises UnavailableError: when the ring has no host that owns anything.
    """
    neighbourhood = plugins.neighbourhood(order, fan_out)
    line, _ = ring.candidates(oid.rendezvous(disk_id), limit=CANDIDATES)
    if not line:
        raise exception.UnavailableError(
            "no host of the ring may be the rendezvous host", hint="see 'acstor ring show'"
        )
    hosts = ring.hosts
    racks = [host.topology for host in hosts]
    found: list[Place] = []
    for position, host in enumerate(hosts):
        parent = neighbourhood.parent(position, racks)
        hears_of, hops = (line[0], 1) if parent is None else _below(found[parent])
        part = "rendezvous" if host.name == line[0] else "member"
        if host.name in line[1:]:
            part = "candidate"
        found.append(Place(host.name, host.topology, part, hears_of, hops))
    return found


def _below(place: Place) -> tuple[str, int]:
    return place.host, place.hops + 1
