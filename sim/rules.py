"""How hosts behave, as settings that compiled code is given."""

from typing import NamedTuple


class Rules(NamedTuple):
    """How hosts behave: the read path's settings, in seconds and bytes."""

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
    """Whether hosts have a chunk store at all; otherwise each read goes to the origin as it is."""
    uses_peers: bool
    keep: int
    """0 never, 1 second touch, 2 always."""
    eviction: int
    """What leaves a store that is full: 0 the oldest, 1 as S3-FIFO says."""
    copies_max: int
    """Copies of a chunk in the pool beyond which cold ones leave first; 0: they are not counted."""
    recent_chunks: int
    candidates_max: int
    previous_rings: int
    hedge_enabled: bool
    hedge_min: float
    hedge_max: float
    hedge_share: float
    hedge_tokens_max: float
    hedge_to_origin: bool
    """Whether a hedge goes to the origin rather than to the next in line."""
    hedge_prior: bool
    """Whether a peer of whom too little is known is taken to be as fast as the others."""
    load_aware: bool
    """Whether loaded peers are passed over, and hedges bounded by what the origin takes."""
    hedge_origin_factor: float
    loaded_ratio: float
    stands_out: float
    """A peer stands out when it takes so many times the median of the host's peers, and slack."""
    loaded_after: float
    """Seconds for which a peer that stands out must have been slow to count as loaded."""
    loaded_looks: int
    """And so many looks in a row that found it slow."""
    loaded_lasting: float
    """Seconds after which a slow peer counts as loaded whether it stands out or not, and others
    may read the origin in its place."""
    recovered_looks: int
    """Good looks in a row that end such a load; one ends what has not lasted so long."""
    stand_in_age: float
    """Only a peer that has answered within so many seconds is asked for what it holds in place of
    one that is loaded for a moment."""
    slack_min: float
    slack_max: float
    probe_interval: float
    origin_calm_ratio: float
    """0, or: the origin takes the place of loaded peers only while it answers within so many times
    what it takes at best."""
    own_link: bool
    """Whether a host that finds all its sources slow takes its own link for full: it then fetches
    nothing twice and keeps everything."""
    own_slow_min: float
    own_slow_max: float
    """Twice a source's usual time within these bounds is what it must exceed for that."""
    compress: int
    """Whether peers are asked to compress: 0 never, 1 where this host's link or theirs is full,
    2 always."""
    compress_ratio: float
    """What is left of a chunk that is sent compressed, on average."""
    compress_latency: float
    """Seconds that compressing and decompressing take together."""
    keep_slow_max: float
    keep_slow_rate: float
    passes_on: bool
    """Whether a host that is asked for what is not its own asks the owner that it knows."""
    is_elastic: bool
    """Whether extra traffic shares links with chunks (TCP) or takes what it wants (UDP)."""
    report_interval: float
    report_jitter: float
    sample_interval: float
