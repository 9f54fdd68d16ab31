"""Options of local files: whole images as plain files beside Nova's base files."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "local_files"

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help=(
            "Whether an image that this host keeps whole (preloaded whole and pinned, or "
            "acstor_pin=true) is also written as a plain file beside Nova's base files, to which "
            "its link is moved: guests that start then read at the speed of the disk. Needs "
            "[image_links] enabled and an agent that runs as root. Turned off again, links are "
            "moved back and the files are removed."
        ),
    ),
    cfg.Opt(
        "capacity",
        type=types.ByteSize(64 * types.MIB, 16 * types.TIB),
        default="50GiB",
        help=(
            "Most bytes that all local files together take of the file system of Nova's base "
            "files. They come in addition to [store] capacity."
        ),
    ),
    cfg.FloatOpt(
        "reserve_percent",
        default=15.0,
        min=1.0,
        max=90.0,
        help=(
            "Percent of that file system that making a local file leaves free for Nova. When less "
            "than half of it is free, local files are removed, the last one first."
        ),
    ),
    cfg.Opt(
        "rate",
        type=types.ByteSize(types.MIB, types.TIB),
        default="128MiB",
        help="Most bytes per second at which local files are written, and read back then.",
    ),
    cfg.FloatOpt(
        "verify_interval",
        default=604800.0,
        min=0.0,
        max=31536000.0,
        help=(
            "Seconds after which a local file is read from the disk and compared with its image "
            "again. One that is damaged is made anew. 0: never."
        ),
    ),
    cfg.Opt(
        "verify_rate",
        type=types.ByteSize(types.MIB, types.TIB),
        default="32MiB",
        help="Most bytes per second at which that is done.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[local_files]``."""
    conf.register_opts(OPTIONS, group=GROUP)
