"""Options of the read path: deadlines, placement, hedging, prefetch."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "readpath"

OPTIONS = [
    cfg.FloatOpt(
        "read_deadline",
        default=30.0,
        min=0.1,
        max=600.0,
        help="Seconds after which a read that could not be served fails with EIO.",
    ),
    cfg.FloatOpt(
        "origin_deadline",
        default=10.0,
        min=0.05,
        max=600.0,
        help="Seconds that one attempt to read the origin may take; at most read_deadline.",
    ),
    cfg.FloatOpt(
        "peer_deadline",
        default=2.0,
        min=0.01,
        max=600.0,
        help="Seconds that one peer may take to answer; at most read_deadline.",
    ),
    cfg.StrOpt(
        "placement",
        default="digest",
        choices=[
            ("oid", "by disk and chunk index, as in the ACStor paper"),
            ("digest", "by content, so that images which share chunks share their owners"),
        ],
        help="What decides which host of the ring owns a chunk. Must be equal on all hosts.",
    ),
    cfg.IntOpt(
        "placement_span_chunks",
        default=16,
        min=1,
        max=4096,
        help=(
            "Chunks of a disk in a row that have one owner, so that neighbouring misses leave the "
            "origin in one call. Must be equal on all hosts; 1 places each chunk by itself."
        ),
    ),
    cfg.StrOpt(
        "keep",
        default="second-touch",
        choices=[
            ("never", "only owners keep chunks, as in the ACStor paper"),
            ("second-touch", "keep a chunk when it is fetched for the second time"),
            ("always", "keep every chunk"),
        ],
        help="Whether a host keeps a chunk that it fetched from a peer.",
    ),
    cfg.BoolOpt(
        "load_aware",
        default=True,
        help=(
            "Whether a host whose link is full is passed over: the next in line is asked for what "
            "it holds and, once the load has lasted for a second, for anything, or the origin "
            "where all in line are loaded, until the host answers as fast as others again; and "
            "whether a host whose own link is full asks for nothing twice and keeps all that it "
            "fetches."
        ),
    ),
    cfg.FloatOpt(
        "slow_fetch",
        default=0.005,
        min=0.001,
        max=60.0,
        help=(
            "Seconds that a chunk takes at least over a link that is full: some ten times what it "
            "takes over this host's link when nothing else is on it. 0.005 fits 64 KiB chunks and "
            "1 Gb/s; slower links or larger chunks need more. Where it is longer, so is the time "
            "for which peers must be slow before they are passed over."
        ),
    ),
    cfg.BoolOpt(
        "compress_slow",
        default=True,
        help=(
            "Whether peers may compress what they send where links are slow: where what agents "
            "tell to be free of this host's link, or of the peer's, takes longer for half a chunk "
            "than compressing it does, below some 1.3 Gbit/s; or where it seems that one of them "
            "is full, if nobody tells. Halves what a boot fetches there, for some tenths of a "
            "millisecond of processor time per chunk; never while less than a fifth of the "
            "processors' time is idle."
        ),
    ),
    cfg.BoolOpt(
        "hedge_enabled",
        default=True,
        help="Whether the next candidate is asked too when a peer is later than its own p99.",
    ),
    cfg.FloatOpt(
        "hedge_min",
        default=0.02,
        min=0.001,
        max=60.0,
        help="Seconds before which a request is never hedged.",
    ),
    cfg.Opt(
        "prefetch_max",
        type=types.ByteSize(0, 256 * types.MIB),
        default="4MiB",
        help="Bytes that are prefetched ahead of a sequential reader. 0: no prefetch.",
    ),
    cfg.StrOpt(
        "exchange",
        default="none",
        choices=[
            ("none", "hosts tell each other nothing"),
            ("ring", "each passes hints on to the next, as Nicolae and Rafique have it"),
            ("k-ring", "chains beside each other, as many as exchange_fan_out"),
            ("tree", "each passes hints on to exchange_fan_out others"),
            ("topology", "as tree, from rack to rack and then within each"),
        ],
        help=(
            "Whether hosts that boot an image of which no boot profile is known tell each other "
            "which chunks they miss, and fetch ahead what others missed; and in which order such "
            "hints are passed on. Pays where many hosts boot an image that nobody has booted, not "
            "all in the same second. Needs [dataplane] read_ahead_budget. The same on all hosts; "
            "one that differs, or is of an older release, takes no part."
        ),
    ),
    cfg.IntOpt(
        "exchange_fan_out",
        default=4,
        min=1,
        max=32,
        help="Hosts to which each passes hints on; in a ring it is one.",
    ),
    cfg.IntOpt(
        "peer_inflight_max",
        default=64,
        min=1,
        max=4096,
        help="Chunks that may be in flight from one peer; more wait or take the next candidate.",
    ),
    cfg.IntOpt(
        "distance_threshold",
        min=0,
        max=255,
        help=(
            "Only candidates nearer than this are asked (ACStor, Algorithm 1): 1 is the host "
            "itself, 3 the same rack, 5 the same pod, 7 every host of a three-level network. "
            "Unset: no candidate is too far. A threshold that the agent gives counts instead, also "
            "after a restart."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[readpath]``."""
    conf.register_opts(OPTIONS, group=GROUP)
