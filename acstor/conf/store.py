"""Options of the chunk store."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "store"

OPTIONS = [
    cfg.StrOpt(
        "path",
        default="$state_path/store",
        help=(
            "Directory of the chunk store. Use a local disk; one data plane has it open at a time."
        ),
    ),
    cfg.Opt(
        "capacity",
        type=types.ByteSize(64 * types.MIB, 16 * types.TIB),
        default="20GiB",
        help=(
            "Bytes that the chunk store may take, with a unit such as GiB. The space is "
            "allocated at the first start and is a hard limit."
        ),
    ),
    cfg.StrOpt(
        "eviction",
        default="s3fifo",
        choices=[
            ("s3fifo", "S3-FIFO: scan-resistant (Yang et al., SOSP 2023)"),
            ("fifo", "oldest insert first"),
            ("lru", "least recently used first"),
            ("lfu", "least frequently used first"),
        ],
        help="Which chunk leaves the store when it is full.",
    ),
    cfg.IntOpt(
        "copies_max",
        default=2,
        min=0,
        max=8,
        help=(
            "Copies of a chunk that the hosts keep for each other: when as many hosts that the "
            "ring places better have a chunk, and this host has not used it lately, its own copy "
            "is the first to leave. Only in a store that is three quarters full, with s3fifo or "
            "lru. 0: copies are not counted."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[store]``."""
    conf.register_opts(OPTIONS, group=GROUP)
