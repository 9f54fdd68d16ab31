"""Options of the agent: interval of its reconcile passes, inputs of the ring, metrics."""

from oslo_config import cfg

from acstor.conf import metrics, types

GROUP = "agent"

OPTIONS = [
    cfg.FloatOpt(
        "interval",
        default=5.0,
        min=0.1,
        max=3600.0,
        help=(
            "Seconds between looks at the members, the ring and the images. Announcements over "
            "oslo.messaging, where transport_url is set, bring the next look forward."
        ),
    ),
    cfg.FloatOpt(
        "ring_settle_delay",
        default=5.0,
        min=0.0,
        max=600.0,
        help="Seconds for which the members must be unchanged before a new ring is published.",
    ),
    cfg.FloatOpt(
        "ring_shrink_share",
        default=0.1,
        min=0.0,
        max=1.0,
        help=(
            "Share of the hosts of the ring that may leave it within ring_shrink_interval because "
            "nothing is heard of them; one host always may. Reads pass over a host that is dead "
            "and in the ring. Hosts that an operator drains or forgets leave at once."
        ),
    ),
    cfg.FloatOpt(
        "ring_shrink_interval",
        default=60.0,
        min=0.0,
        max=3600.0,
        help=(
            "Seconds for ring_shrink_share; also for how long after this host has connected to "
            "the coordination backend, or has become the ring's publisher, it takes no host out of "
            "the ring, while the others connect. "
            "At least 15 and [coordination] member_timeout together, if that is to work."
        ),
    ),
    cfg.Opt(
        "ring_vnodes",
        type=types.PowerOfTwo(min=16, max=1 << 22),
        default=65536,
        help="Arcs (v-nodes) into which the ring is cut, a power of two; 128 per host or more.",
    ),
    cfg.StrOpt(
        "ring_weights",
        default="equal",
        choices=[
            ("equal", "every host owns the same share"),
            ("capacity", "shares follow the capacities of the chunk stores"),
        ],
        help="What share of the ring a host gets.",
    ),
    cfg.Opt(
        "pin_head",
        type=types.ByteSize(0, types.GIB),
        default="1MiB",
        help="Bytes at the head of each image that are fetched at once and kept.",
    ),
    cfg.Opt(
        "pin_tail",
        type=types.ByteSize(0, types.GIB),
        default="64KiB",
        help="Bytes at the tail of each image that are fetched at once and kept.",
    ),
    cfg.FloatOpt(
        "pin_timeout",
        default=60.0,
        min=0.1,
        max=3600.0,
        help="Seconds that pinning one image may take before it is tried again later.",
    ),
    cfg.FloatOpt(
        "working_set_interval",
        default=60.0,
        min=0.1,
        max=3600.0,
        help=(
            "Seconds between two reports of what boots on this host read of an image, and in "
            "which order. The data planes use what all hosts have learnt so to preload and to read "
            "ahead, and the scheduler to place."
        ),
    ),
    cfg.BoolOpt(
        "hand_over_warm_sets",
        default=True,
        help=(
            "Whether this host preloads what a server reads that is migrated, resized or evacuated "
            "to it: what guests of the server's image read on the host that it comes from, and "
            "what all hosts have learnt. Needs transport_url, and a registrar that hears Nova's "
            "notifications ([registrar] nova_notification_topics)."
        ),
    ),
    cfg.Opt(
        "hand_over_size_max",
        type=types.ByteSize(types.MIB, types.TIB),
        default="1GiB",
        help=(
            "Bytes of one image that are preloaded because of what another host tells; what boots "
            "read there comes first."
        ),
    ),
    cfg.FloatOpt(
        "hand_over_timeout",
        default=600.0,
        min=1.0,
        max=86400.0,
        help=(
            "Seconds after which such a preload is given up: by then the server itself has read "
            "what it needs."
        ),
    ),
    *metrics.options(9471),
    cfg.FloatOpt(
        "state_interval",
        default=10.0,
        min=0.5,
        max=600.0,
        help=(
            "Seconds between two messages that tell the schedulers how this host is, and over "
            "which its extra traffic is measured. A data plane that goes or comes, and a drain, "
            "are told at once. Needs transport_url; the data plane is told what is free of its "
            "link as often, with or without it."
        ),
    ),
    cfg.FloatOpt(
        "disk_interval",
        default=3600.0,
        min=0.0,
        max=86400.0,
        help=(
            "Seconds between two looks at what the kernel and the disk of the chunk store say of "
            "its health and wear. The disk is asked by smartctl, where that is installed and the "
            "agent may open the device. 0: never; only failed reads and writes tell."
        ),
    ),
    cfg.ListOpt(
        "interfaces",
        default=[],
        help=(
            "Network interfaces whose traffic counts, by name. Empty: the one with the address "
            "under which peers reach this host, or where none has it those of the default routes."
        ),
    ),
    cfg.IntOpt(
        "link_speed",
        min=1,
        max=10_000_000,
        help=(
            "Mbit/s of each of these interfaces in one direction. Unset: what the interface says; "
            "virtual ones often say nothing, or something that is not true."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[agent]``."""
    conf.register_opts(OPTIONS, group=GROUP)
