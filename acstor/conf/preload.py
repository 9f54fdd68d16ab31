"""Options of preloads: what they may take of a host, and how long commands wait for hosts."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "preload"

OPTIONS = [
    cfg.Opt(
        "rate",
        type=types.ByteSize(64 * types.KIB, types.TIB),
        default="64MiB",
        help=(
            "Bytes per second at which each host fetches where the command gives neither a rate "
            "nor a deadline."
        ),
    ),
    cfg.Opt(
        "rate_max",
        type=types.ByteSize(0, types.TIB),
        default="0",
        help=(
            "Most bytes per second that all preloads of this host together are admitted. 0: only "
            "link_share counts."
        ),
    ),
    cfg.FloatOpt(
        "link_share",
        default=0.5,
        min=0.01,
        max=1.0,
        help=(
            "Most of this host's link, as a share of 1, that all preloads together are admitted. "
            "Where the speed of the link is not known, only rate_max counts."
        ),
    ),
    cfg.FloatOpt(
        "deadline_margin",
        default=1.25,
        min=1.0,
        max=10.0,
        help=(
            "By how much the rate of a preload that has a deadline and no rate is higher than "
            "what would do: guests go first, and what they cost must be caught up."
        ),
    ),
    cfg.FloatOpt(
        "keep_ended",
        default=86400.0,
        min=0.0,
        max=31536000.0,
        help="Seconds for which a preload that has ended is listed.",
    ),
    cfg.FloatOpt(
        "call_timeout",
        default=10.0,
        min=1.0,
        max=300.0,
        help="Seconds that a host may take to answer a command.",
    ),
    cfg.StrOpt(
        "multicast",
        default="off",
        choices=[
            ("off", "Preloads fetch, and nothing is sent by multicast."),
            ("auto", "Preloads listen to a multicast session first, where one can be had."),
        ],
        help=(
            "Whether this host sends what preloads bring to a multicast group, and listens to it: "
            "on all hosts of a cloud, or on none. What does not come, because packets are lost or "
            "the network has no multicast, is fetched as ever."
        ),
    ),
    cfg.IPOpt(
        "multicast_group",
        default="239.255.70.15",
        help=(
            "Group, the same on all hosts: of 239.0.0.0/8, or ff02::/16. Packets do not leave the "
            "network segment."
        ),
    ),
    cfg.PortOpt(
        "multicast_port",
        default=7421,
        min=1,
        help="UDP port of the group, the same on all hosts.",
    ),
    cfg.IPOpt(
        "multicast_interface",
        version=4,
        help=(
            "Address of this host on the network of the group. Unset: that under which peers reach "
            "it, where it is one of IPv4. A group of IPv6 uses an interface of the system's choice."
        ),
    ),
    cfg.Opt(
        "multicast_link",
        type=types.ByteSize(types.MIB, types.TIB),
        default="119MiB",
        help=(
            "Bytes per second of this host's link. The rate of a session begins at a hundredth of "
            "it, grows by as much ten times a second, and never exceeds half of it. The default is "
            "1 Gbit/s."
        ),
    ),
    cfg.Opt(
        "multicast_rate",
        type=types.ByteSize(64 * types.KIB, types.TIB),
        default="48MiB",
        help=("Most bytes per second of a session. A preload whose rate is lower does not listen."),
    ),
    cfg.BoolOpt(
        "nova_cache_images",
        default=False,
        help=(
            "Whether the registrars preload an image whole on the hosts on which Nova is asked to "
            "cache it ('openstack aggregate cache image'). They learn it from Nova's versioned "
            "notifications: set [notifications] notification_format = both (or versioned) and "
            "[oslo_messaging_notifications] driver = messagingv2 for nova-conductor. Needs "
            "[registrar] nova_notification_topics and transport_url."
        ),
    ),
    cfg.BoolOpt(
        "nova_cache_pin",
        default=False,
        help=(
            "Whether what is preloaded so is also pinned, until 'acstor preload stop': all pins "
            "together have a quarter of each store."
        ),
    ),
    cfg.StrOpt(
        "nova_notification_pool",
        default="acstor-image-caching",
        regex=r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        help=(
            "Name of the queue that gets copies of them, the same for all registrars: each "
            "notification is followed once. It keeps what arrives while none runs; delete it in "
            "the broker when nova_cache_images is turned off again."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[preload]``."""
    conf.register_opts(OPTIONS, group=GROUP)
