"""Options of the volumes that this host serves."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "volumes"

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        help="Whether this host opens volumes. Without it requests to open one are refused.",
    ),
    cfg.StrOpt(
        "directory",
        default="$state_path/volumes",
        help=(
            "Directory of the local logs: what guests wrote to the volumes that are open here. "
            "Use a local disk that keeps what it was told to (fsync)."
        ),
    ),
    cfg.StrOpt(
        "socket_directory",
        default="/run/acstor/nbd",
        help="Directory of the NBD sockets that QEMU connects to, <volume>.sock.",
    ),
    cfg.StrOpt(
        "socket_group",
        help=(
            "Group whose members may connect to the NBD sockets (mode 0660): one that the users of "
            "QEMU (such as libvirt-qemu, group kvm) and Cinder are in. Unset: root and the data "
            "plane's own group only."
        ),
    ),
    cfg.StrOpt(
        "control_socket",
        default="/run/acstor/volumes.sock",
        help=(
            "Unix socket on which the data plane opens and closes volumes for nova-compute, "
            "cinder-volume and cinder-backup of this host."
        ),
    ),
    cfg.StrOpt(
        "control_group",
        help=(
            "Group whose members may use control_socket (mode 0660): one that the users of Nova "
            "and Cinder are in, and QEMU's is not. Unset: root and the data plane's own user."
        ),
    ),
    cfg.Opt(
        "quota_bytes",
        type=types.ByteSize(0, types.TIB * 1024),
        default="0",
        help=(
            "Bytes that the local log of one volume may take; writes beyond it fail with ENOSPC. "
            "0: as many as a log needs whose guest overwrites the whole volume again and again, "
            "about 2.05 times the volume's size and 1.6 GiB, which grows with the volume. The room "
            "on the file system is a limit in any case, see reserve_percent."
        ),
    ),
    cfg.IntOpt(
        "reserve_percent",
        default=5,
        min=0,
        max=90,
        help=(
            "Share of their file system that local logs leave free, per cent: what guests write "
            "when there is no more room fails with ENOSPC, and everything else on the file system "
            "goes on. Counts for volumes that are opened from then on."
        ),
    ),
    cfg.Opt(
        "segment_bytes",
        type=types.ByteSize(types.MIB, types.GIB),
        default="64MiB",
        help="Bytes of one file of a local log: the unit in which its space is reclaimed.",
    ),
    cfg.Opt(
        "fold_bytes",
        type=types.ByteSize(types.MIB, types.TIB),
        default="256MiB",
        help=(
            "Bytes of a volume's log in the origin from which it is folded into packs and a new "
            "manifest."
        ),
    ),
    cfg.IntOpt(
        "fold_objects",
        default=2048,
        min=1,
        max=65536,
        help=(
            "Objects of a volume's log in the origin from which it is folded: whoever takes the "
            "volume over reads as many. A volume with a large manifest is folded later (16 KiB of "
            "the manifest for each object, and as many bytes as it has); of both thresholds each "
            "volume takes a share of its own, from three quarters on, so that volumes which are "
            "written alike are not folded together."
        ),
    ),
    cfg.FloatOpt(
        "fold_spread",
        default=60.0,
        min=0.0,
        max=3600.0,
        help=(
            "Seconds over which what folds store is spread, for all volumes that are due on this "
            "host together. 0: at once."
        ),
    ),
    cfg.Opt(
        "push_rate",
        type=types.ByteSize(0, types.TIB),
        default="0",
        help=(
            "Bytes per second at which writes of write-back volumes go to the origin, per volume. "
            "0: no limit. What somebody waits for (write-through, a snapshot) is not limited."
        ),
    ),
    cfg.FloatOpt(
        "stop_push_timeout",
        default=20.0,
        min=0.0,
        max=600.0,
        help=(
            "Seconds for which a data plane that is stopped for good (not restarted) has what the "
            "origin lacks pushed. Writes wait meanwhile; what is left stays in the local logs, and "
            "the next process pushes it. systemd must give it that time (TimeoutStopSec)."
        ),
    ),
    cfg.FloatOpt(
        "origin_deadline",
        default=30.0,
        min=0.1,
        max=600.0,
        help=(
            "Seconds that one operation of a volume on the origin may take, with its repetitions, "
            "before it counts as failed and is tried again. What guests wait for is not bounded by "
            "this: see io_timeout."
        ),
    ),
    cfg.FloatOpt(
        "io_timeout",
        default=0.0,
        min=0.0,
        max=86400.0,
        help=(
            "Seconds that a guest's request waits for an origin that does nothing before it fails "
            "with EIO, for volumes whose type does not say so (acstor:io_timeout). 0: without "
            "limit; the guest goes on where it was once the origin is back."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[volumes]``."""
    conf.register_opts(OPTIONS, group=GROUP)
