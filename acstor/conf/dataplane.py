"""Options of the data-plane process and its FUSE file system."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "dataplane"

OPTIONS = [
    cfg.StrOpt(
        "mount_point",
        default="$state_path/images",
        help=(
            "Directory where the images appear as <uuid>.raw. Created when missing; must be on a "
            "mount that libvirt and Nova see too, so not in a private mount namespace."
        ),
    ),
    cfg.StrOpt(
        "admin_socket",
        default="/run/acstor/dataplane.sock",
        help="Unix socket (mode 0600) on which the data plane answers the agent and acstor.",
    ),
    cfg.StrOpt(
        "holder_socket",
        default="/run/acstor/holder.sock",
        help=(
            "Unix datagram socket on which acstor-holder keeps descriptors for the data plane "
            "where there is no systemd."
        ),
    ),
    cfg.StrOpt(
        "user",
        default="acstor",
        help=(
            "User who runs the data plane where it is not root: acstor-mount answers nobody else, "
            "and gives him what a data plane wrote that was root."
        ),
    ),
    cfg.StrOpt(
        "mount_socket",
        default="/run/acstor-mount/mount.sock",
        help=(
            "Unix socket (mode 0660, of the group of user) on which acstor-mount mounts for a data "
            "plane that is not root. One that is root mounts itself."
        ),
    ),
    cfg.IntOpt(
        "fuse_threads",
        min=1,
        max=64,
        sample_default="<a quarter of the processors, 2 to 8>",
        help="Threads that answer FUSE requests from memory, all on one descriptor. Without a "
        "value a quarter of the processors that the process may use, at least 2 and at most 8.",
    ),
    cfg.IntOpt(
        "runtime_threads",
        default=2,
        min=1,
        max=64,
        help="Threads for peers and misses.",
    ),
    cfg.IntOpt(
        "origin_threads",
        default=4,
        min=1,
        max=16,
        help="Threads that read from the origin: reads of the origin under way at a time.",
    ),
    cfg.StrOpt(
        "prefer",
        default="origin-bytes",
        choices=[
            (
                "origin-bytes",
                "each chunk leaves the origin about once: it stands in for owners only where all "
                "in line are loaded for long",
            ),
            (
                "boot-time",
                "the origin is asked before the owner of a chunk wherever it is faster and has "
                "room; the reads that a host has under way there follow the origin's own time, so "
                "that hosts come to equal shares",
            ),
        ],
        help=(
            "What counts more where the two are at odds: the bytes that the origin serves, or the "
            "time of guests. boot-time is for an origin with much more than one link of a host."
        ),
    ),
    cfg.IntOpt(
        "read_ahead_kb",
        default=0,
        min=0,
        max=16384,
        help=(
            "Read-ahead of the kernel on the mount, KiB, set after mounting. 0 is none: four "
            "hosts that boot at once then read 1.05 times what their guests read out of the "
            "origin, with 128 it was 1.17 and with 1024 1.52 times. Raise it where whole images "
            "are read from warm chunk stores. The data plane prefetches sequential reads itself."
        ),
    ),
    cfg.BoolOpt(
        "allow_other",
        default=True,
        help="Whether users other than root (libvirt, Nova) may read the images.",
    ),
    cfg.StrOpt(
        "image_group",
        sample_default="<acstor-images where that group has members>",
        help=(
            "Group that may read the images beside root, by name or number: files of mode 0440 in "
            "a directory of mode 0550. The users of nova-compute and of QEMU must be in it. "
            "Without a value it is acstor-images if that group exists and has members. An empty "
            "value lets every user of the host read all images of all projects (0444, 0555), "
            "and so does no value without such a group, with a warning. A name must exist."
        ),
    ),
    cfg.FloatOpt(
        "boot_window",
        default=120.0,
        min=1.0,
        max=3600.0,
        help=(
            "Seconds after a guest opened an image for which the chunks that it reads count as "
            "read by its boot. Opens less than this apart are counted as one boot."
        ),
    ),
    cfg.Opt(
        "hint_preload_rate",
        type=types.ByteSize(0, types.TIB),
        default="100MiB",
        help=(
            "Bytes per second at which the chunks that boots of an image read are fetched ahead "
            "when the times of its file are set, as Nova does before it boots an instance from "
            "it. 0: nothing is fetched then."
        ),
    ),
    cfg.Opt(
        "read_ahead_budget",
        type=types.ByteSize(0, 64 * types.GIB),
        default="128MiB",
        help=(
            "Memory for chunks that are fetched along the boot profile of an image before guests "
            "read them, of all images of this host together, and at most 1 % of the host's memory. "
            "A boot of a small Linux image reads some 50 MiB. 0: nothing is read ahead of a boot."
        ),
    ),
    cfg.Opt(
        "manifest_cache",
        type=types.ByteSize(types.MIB, 4 * types.GIB),
        default="16MiB",
        help=(
            "Memory for pages of manifests of format 2, of all disks of this host together. A page "
            "that is not there is read from this host's disk before the read that needs it goes "
            "on; 1 MiB of pages says where some 1.3 GiB of data is, in chunks of 64 KiB. Those of "
            "format 1 are in memory as a whole, beside it."
        ),
    ),
    cfg.FloatOpt(
        "stop_timeout",
        default=5.0,
        min=0.1,
        max=60.0,
        help="Seconds that stopping may take before the process exits anyway.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[dataplane]``."""
    conf.register_opts(OPTIONS, group=GROUP)
