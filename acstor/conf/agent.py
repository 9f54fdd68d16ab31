"""Options of the agent: how often it looks, what the ring is built from, metrics."""

from oslo_config import cfg

from acstor.conf import types

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
    cfg.HostAddressOpt(
        "metrics_address",
        default="127.0.0.1",
        help="Address of the Prometheus endpoint (/metrics) of agent and data plane.",
    ),
    cfg.PortOpt(
        "metrics_port",
        default=9471,
        help="TCP port of the Prometheus endpoint. 0: any free one.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[agent]``."""
    conf.register_opts(OPTIONS, group=GROUP)
