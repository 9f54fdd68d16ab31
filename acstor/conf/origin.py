"""Options of the origin."""

from oslo_config import cfg

GROUP = "origin"

OPTIONS = [
    cfg.StrOpt(
        "url",
        default="posix:///var/lib/acstor/origin",
        help=(
            "Where everything can be re-read from. The scheme names the driver (entry points "
            "'acstor.origin'): posix:///path is a directory on a local disk, NFS or CephFS that "
            "all hosts see. NFS needs the mount options lookupcache=none,acdirmin=0,acdirmax=0. "
            "https://host/path is a web server to read from; its query names files with "
            "credentials: ca_cert, cert_cert, cert_key, token_file. "
            "rados://CLIENT@POOL is a replicated pool of Ceph; behind a ? may follow stripe_pool "
            "(for the bytes of large objects; it may be erasure-coded), ref_pool (a replicated "
            "pool for the refs; POOL may then be erasure-coded, too), conf (path of ceph.conf), "
            "namespace (default acstor), role=host (on hosts with a key of their own) and timeout "
            "(of each operation, seconds; default 10), joined by &."
        ),
    ),
    cfg.ListOpt(
        "members",
        default=[],
        help=(
            "Stores of an origin that is in two to four of them, each NAME=URL, the home of the "
            "refs first; takes the place of url. Objects of images are copied to all of them and "
            "read from whichever has them; the logs of volumes are in the home alone. Made with "
            "'acstor origin create'. Empty: the origin is the one store of url. Kinds: posix, "
            "rados."
        ),
    ),
    cfg.IntOpt(
        "sync_rate",
        default=100,
        min=1,
        max=100_000,
        help=(
            "Largest rate at which the registrar that leads copies to and from each of the "
            "members, MiB per second. The larger, the sooner is in all what was stored in one, and "
            "the more do hosts notice."
        ),
    ),
    cfg.FloatOpt(
        "timeout",
        default=30.0,
        min=0.1,
        max=3600.0,
        help=(
            "Seconds within which a call of the control plane to the origin is repeated while "
            "the origin is unavailable. Reads of guests have their own, shorter deadline: "
            "[readpath] read_deadline."
        ),
    ),
    cfg.IntOpt(
        "reserve_percent",
        default=5,
        min=0,
        max=90,
        help=(
            "Share of the origin's file system, per cent, that registrations of images leave to "
            "the volumes: a guest whose write waits for a full origin stands still. An image that "
            "finds less free is registered later. 0: registrations take the last byte. Counts "
            "for origins that tell how much room they have (posix)."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[origin]``."""
    conf.register_opts(OPTIONS, group=GROUP)
