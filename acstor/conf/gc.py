"""Options of garbage collection."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "gc"

OPTIONS = [
    cfg.FloatOpt(
        "grace",
        default=86400.0,
        min=60.0,
        max=31536000.0,
        help=(
            "Seconds between the collection that finds an object unreferenced and the one that "
            "may delete it. A registration that runs longer loses no data, but may have to store "
            "chunks a second time. On NFS at least twice the mount's attribute cache time."
        ),
    ),
    cfg.BoolOpt(
        "compact",
        default=True,
        help=(
            "Whether the registrar compacts packs after each of its collections: chunks that are "
            "needed are copied out of packs of which little is needed, so that a later collection "
            "deletes those. Only in repositories of version 7. 'acstor repository compact' does "
            "it once, whatever this says."
        ),
    ),
    cfg.FloatOpt(
        "compact_dead_share",
        default=0.1,
        min=0.01,
        max=0.9,
        help=(
            "Share of the stored bytes of images, and of those of volumes, that may be of chunks "
            "which nothing needs. Above it, packs are compacted, those first of which the least "
            "is needed."
        ),
    ),
    cfg.FloatOpt(
        "compact_live_share_max",
        default=2 / 3,
        min=0.05,
        max=0.95,
        help=(
            "Largest share of a pack that may be needed for it to be compacted. At two thirds a "
            "byte that is freed costs at most two that are written."
        ),
    ),
    cfg.Opt(
        "compact_rate",
        type=types.ByteSize(),
        default=32 * types.MIB,
        sample_default="32MiB",
        help=(
            "Most bytes per second that the registrar reads from the origin to compact packs; it "
            "writes fewer. 0: no limit. 'acstor repository compact' is not limited."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[gc]``."""
    conf.register_opts(OPTIONS, group=GROUP)
