"""Publishers of rings as tests make them, and members for them to see."""

from collections.abc import Callable

from acstor.cluster.member import Member
from acstor.cluster.membership import View
from acstor.cluster.ring.decision import Decision
from acstor.cluster.ring.publication import RingPublisher
from acstor.cluster.ring.published_ring import RingReference, read_ring
from acstor.cluster.ring.publisher_term import TermHolder
from acstor.cluster.ring.shrink_bound import ShrinkBound
from acstor.native import Ring
from acstor.origin.base import Origin

GIB = 1 << 30
INTERVAL = 60.0
"""Seconds of ``ring_shrink_interval``."""


def member(name: str, capacity_bytes: int = GIB, **fields: object) -> Member:
    described = {
        "name": name,
        "peer_address": f"10.0.0.{int(name[1:])}:7420",
        "metrics_address": "127.0.0.1:1",
        "capacity_bytes": capacity_bytes,
        "release": "1",
        **fields,
    }
    return Member(**described)  # type: ignore[arg-type]


def members(*found: Member) -> dict[str, Member]:
    return {each.name: each for each in found}


def named(*names: str) -> dict[str, Member]:
    return members(*map(member, names))


def make_publisher(
    origin: Origin,
    clock: Callable[[], float],
    *,
    host: str = "h1",
    vnode_count: int = 64,
    settle_delay: float = 0.0,
    shrink_share: float = 0.1,
    is_dismissed: Callable[[str], bool] = lambda name: False,
    is_elected: Callable[[], bool] = lambda: True,
    claim_clock: Callable[[], float] = lambda: 0.0,
) -> RingPublisher:
    """Return a publisher; one whose terms began long ago, unless ``claim_clock`` says otherwise."""
    return RingPublisher(
        RingReference(origin, clock),
        host=host,
        term_holder=TermHolder(origin, host, clock=claim_clock),
        bound=ShrinkBound(
            host,
            share_max=shrink_share,
            interval=INTERVAL,
            is_dismissed=is_dismissed,
            clock=clock,
        ),
        weights="equal",
        vnode_count=vnode_count,
        settle_delay=settle_delay,
        is_elected=is_elected,
        clock=clock,
    )


def look(
    publisher: RingPublisher,
    found: dict[str, Member],
    decision: Decision | None = None,
    *,
    is_decision_known: bool = True,
    joined_at: float = 0.0,
) -> Ring | None:
    """Have the publisher look at these members, which it is one of since ``joined_at``."""
    view = View(found, is_current=True, is_publisher=True, joined_at=joined_at)
    return publisher.reconcile(lambda: view, decision, is_decision_known=is_decision_known)


def owners(origin: Origin) -> list[str]:
    """Return the hosts that own a part of the published ring."""
    published = read_ring(origin)
    return [host.name for host in published.ring.hosts if host.vnodes] if published else []
