"""Taking one host out of the published ring, because an operator says that it is gone for good."""

import logging

from acstor import exception
from acstor.cluster.ring.building import next_ring
from acstor.cluster.ring.published_ring import RingReference
from acstor.native import RingHost
from acstor.origin.base import RefStore

LOG = logging.getLogger(__name__)

_ATTEMPTS = 5


def remove_host(refs: RefStore, name: str) -> bool:
    """Publish a ring without a host; the others keep their weights.

    It needs no term (:mod:`acstor.cluster.ring.publisher_term`): the publisher finds the ring
    changed and goes on from it.

    :returns: whether the ring is without it now. False: nobody else could own anything, and the
        host stays until another one is there.
    :raises ConflictError: when others publish all the time.
    :raises CorruptError: when the published ring is not readable.
    :raises UnavailableError: when the origin cannot be reached.
    """
    reference = RingReference(refs)
    for _ in range(_ATTEMPTS):
        published = reference.read()
        if published is None or all(host.name != name for host in published.ring.hosts):
            return True
        ring = published.ring
        hosts = [
            RingHost(host.name, host.address, host.weight, host.topology)
            for host in ring.hosts
            if host.name != name
        ]
        if not any(host.weight for host in hosts):
            return False
        changed = next_ring(hosts, ring, None, vnode_count=ring.vnode_count, seed=ring.seed)
        try:
            reference.replace(published, changed)
        except exception.ConflictError:
            LOG.info("another host has published a ring meanwhile")
            continue
        return True
    raise exception.ConflictError(
        f"host {name} could not be taken out of the ring, which changes all the time",
        hint="try again",
    )
