"""Options of the registration of images."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "registration"

OPTIONS = [
    cfg.Opt(
        "pack_size",
        type=types.ByteSize(types.MIB, types.GIB),
        default="64MiB",
        help=(
            "Size at which a pack is closed and stored. Each worker keeps one or two packs in "
            "memory."
        ),
    ),
    cfg.IntOpt(
        "workers",
        default=2,
        min=1,
        max=64,
        help="Packs that one registration writes to the origin at the same time.",
    ),
    cfg.StrOpt(
        "cache_path",
        default="$state_path/registration",
        help=(
            "Directory that keeps the digests of packs seen before and the packs of manifests, so "
            "that the next registration or garbage collection need not read them from the origin "
            "again. May be removed at any time."
        ),
    ),
    cfg.FloatOpt(
        "tool_timeout",
        default=60.0,
        min=1.0,
        max=3600.0,
        help="Seconds that qemu-img may take to describe an image.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[registration]``."""
    conf.register_opts(OPTIONS, group=GROUP)
