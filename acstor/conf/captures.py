"""Options of captures: versions of the disks of this host's servers and volumes."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "captures"

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help=(
            "Whether this host captures versions of its servers' and volumes' disks when the "
            "service of versions asks for them. Servers need an agent that runs as root, and the "
            "Python binding of libvirt."
        ),
    ),
    cfg.StrOpt(
        "libvirt_uri",
        default="qemu:///system",
        help="The libvirt that Nova uses on this host.",
    ),
    cfg.BoolOpt(
        "monitor",
        default=True,
        help=(
            "Whether QEMU's monitor may be asked, through libvirt, which part of a running "
            "server's disk is its own. libvirt marks such servers as tainted, which changes "
            "nothing else. Without it each capture of a running server reads its whole disks."
        ),
    ),
    cfg.StrOpt(
        "path",
        default="$state_path/captures",
        help="Directory of what is captured and not yet in the origin.",
    ),
    cfg.Opt(
        "capacity",
        type=types.ByteSize(64 * types.MIB, 16 * types.TIB),
        default="20GiB",
        help=(
            "Most bytes that all captures together take there. One that needs more fails, and is "
            "never shown as a version."
        ),
    ),
    cfg.FloatOpt(
        "reserve_percent",
        default=15.0,
        min=0.0,
        max=90.0,
        help="Percent of the file system of path that captures leave free.",
    ),
    cfg.StrOpt(
        "scratch_path",
        default="/run/acstor-captures",
        help=(
            "Directory in which QEMU keeps what running servers overwrite while they are captured, "
            "and its sockets. Must be on another file system than the servers' disks, or such "
            "captures are refused: a full one would be an I/O error in the guests. Made by the "
            "agent."
        ),
    ),
    cfg.StrOpt(
        "qemu_user",
        default="libvirt-qemu",
        help="User that QEMU runs as, whom scratch_path is given to. Empty: QEMU runs as root.",
    ),
    cfg.Opt(
        "scratch_max",
        type=types.ByteSize(types.MIB, 16 * types.TIB),
        default="4GiB",
        help=(
            "Most bytes that one server may overwrite while it is captured. The capture is given "
            "up then, and the server goes on; likewise when less than a tenth of the file system "
            "is free."
        ),
    ),
    cfg.IntOpt(
        "jobs",
        default=2,
        min=1,
        max=64,
        help="Most servers whose disks are read at the same time.",
    ),
    cfg.Opt(
        "read_rate",
        type=types.ByteSize(0, types.TIB),
        default="200MiB",
        help="Most bytes per second that are read of disks, all together. 0: no limit.",
    ),
    cfg.Opt(
        "write_rate",
        type=types.ByteSize(0, types.TIB),
        default="100MiB",
        help="Most bytes per second that are written to path, all together. 0: no limit.",
    ),
    cfg.IntOpt(
        "nice",
        default=10,
        min=0,
        max=19,
        help=(
            "By how much the processes of captures are nicer than the agent. Their reads and "
            "writes have the lowest best-effort priority."
        ),
    ),
    cfg.FloatOpt(
        "commit_delay",
        default=120.0,
        min=0.0,
        max=86400.0,
        help=(
            "Longest time in seconds that a capture of a schedule waits on this host for the "
            "others of the same slot: what they have in common is sent once. What waits is no "
            "version yet, and is lost with the host. 0: none waits."
        ),
    ),
    cfg.Opt(
        "commit_bytes",
        type=types.ByteSize(0, 16 * types.TIB),
        default="4GiB",
        help="Bytes of captures that wait after which all of them are sent.",
    ),
    cfg.FloatOpt(
        "hold_max",
        default=86400.0,
        min=60.0,
        max=2592000.0,
        help="Seconds for which a capture is tried to be stored in an origin that is away.",
    ),
    cfg.FloatOpt(
        "keep_ended",
        default=604800.0,
        min=60.0,
        max=31536000.0,
        help="Seconds after which a capture that has ended is forgotten, whoever asked for it.",
    ),
    cfg.BoolOpt(
        "pins",
        default=True,
        help=(
            "Whether the disks of servers that ask for a version at their end "
            "(acstor:version_on) are pinned: they are linked beside Nova's directories, so that "
            "their last state can be captured although Nova has deleted them."
        ),
    ),
    cfg.FloatOpt(
        "pin_keep",
        default=3600.0,
        min=60.0,
        max=2592000.0,
        help="Seconds for which the disks of a server that is gone stay pinned.",
    ),
    cfg.FloatOpt(
        "pin_free_percent",
        default=10.0,
        min=0.0,
        max=90.0,
        help=(
            "Percent of the file system of the servers' disks below which disks of servers that "
            "are gone are let go, the oldest first."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[captures]``."""
    conf.register_opts(OPTIONS, group=GROUP)
