"""Behaviour of hosts, as settings that the compiled core is given.

What the choice of sources has no setting for is a constant of ``crates/selection`` (``limits.rs``).
"""

from typing import NamedTuple


class Rules(NamedTuple):
    """Behaviour of hosts: the read path's settings, in seconds and bytes."""

    chunk_bytes: float
    wire_share: float
    quantum: float
    in_order: float
    """Share of a link's chunks that goes to who asked first; the rest is shared fairly."""
    local_latency: float
    peer_latency: float
    origin_latency: float
    connect_timeout: float
    peer_deadline: float
    origin_deadline: float
    read_deadline: float
    is_cached: bool
    """True if hosts have a chunk store at all; otherwise each read goes to the origin as it is."""
    uses_peers: bool
    keep: int
    """0 never, 1 second touch, 2 always."""
    eviction: int
    """Chunk that leaves a store that is full: 0 the oldest, 1 that of S3-FIFO."""
    copies_max: int
    """Copies of a chunk in the pool beyond which cold ones leave first; 0: they are not counted."""
    recent_chunks: int
    candidates_max: int
    previous_rings: int
    hedge_enabled: bool
    hedge_min: float
    hedge_max: float
    hedge_share: float
    load_aware: bool
    """True if loaded peers are passed over, and hedges bounded by what the origin takes."""
    slow_fetch: float
    """Time of a chunk over a link that is full."""
    own_link: bool
    """True if a host that finds all its sources slow takes its own link for full: it then fetches
    nothing twice and keeps everything."""
    boot_time: bool
    """True if the origin is asked before peers where it is faster; else its bytes count more."""
    oracle: int
    """Part of whoever knows all links: 0 none, 1 what is chosen is compared, 2 it chooses."""
    compress: int
    """Policy of asking peers to compress: 0 never, 1 where this host's link or theirs is full, 2
    always."""
    compress_ratio: float
    """Part of a chunk that is left when it is sent compressed, on average."""
    compress_latency: float
    """Seconds that compressing and decompressing take together."""
    origin_ratio: float
    """Part of a chunk that the origin holds of it: less than 1 where packs are compressed."""
    sender_answers: int
    """Answers that a host writes at a time, each whole; 0: all of them, side by side."""
    sender_stall: float
    """Seconds after which an answer that its receiver holds up gives its turn away."""
    socket_bytes: float
    """Bytes of an answer that are beyond recall in a socket: its window and what it buffers."""
    classes: bool
    """True if what somebody waits for goes before what is fetched ahead, wherever chunks queue."""
    origin_reads: int
    """Reads of the origin that a host has under way; 0: all of them."""
    ahead_budget: float
    """Bytes fetched ahead and not read yet that a host and an open image have room for."""
    exchange: int
    """Order in which hosts hear what others miss of an image.

    0 not at all, 1 a ring, 2 a k-ring, 3 a tree.
    """
    exchange_fan_out: int
    """Hosts to which each passes a hint on, in a k-ring or a tree."""
    exchange_unmatched: float
    """Bytes fetched on hints and not read yet beyond which a host sends and follows none."""
    is_elastic: bool
    """True if extra traffic shares links with chunks (TCP); else it takes what it wants (UDP)."""
    report_interval: float
    report_jitter: float
    sample_interval: float
