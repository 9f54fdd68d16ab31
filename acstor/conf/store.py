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
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[store]``."""
    conf.register_opts(OPTIONS, group=GROUP)
