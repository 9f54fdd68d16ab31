"""Options of garbage collection."""

from oslo_config import cfg

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
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[gc]``."""
    conf.register_opts(OPTIONS, group=GROUP)
