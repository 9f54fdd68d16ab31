"""Options of the pollsters, in the ``[acstor]`` section of ceilometer.conf."""

from typing import Any

from oslo_config import cfg

GROUP = "acstor"

OPTIONS = [
    cfg.ListOpt(
        "interfaces",
        default=[],
        help=(
            "Network interfaces whose traffic counts, by name, as [agent] interfaces has them in "
            "acstor.conf. Empty: those of the default routes."
        ),
    ),
    cfg.IntOpt(
        "link_speed",
        min=1,
        max=10_000_000,
        help=(
            "Mbit/s of each of these interfaces in one direction, as [agent] link_speed. Unset: "
            "what the interface says."
        ),
    ),
    cfg.StrOpt(
        "metrics_url",
        default="http://127.0.0.1:9471/metrics",
        help=(
            "Metrics of ACStor's agent on this host: what the data plane moved, which is no extra "
            "traffic. Empty: all traffic counts as extra."
        ),
    ),
    cfg.FloatOpt(
        "metrics_timeout",
        default=2.0,
        min=0.1,
        max=60.0,
        help="Seconds that the agent may take to answer.",
    ),
    cfg.BoolOpt(
        "is_origin_remote",
        default=True,
        help="Whether reads of the origin go over the network: false for one on a local disk.",
    ),
    cfg.StrOpt(
        "host",
        help="Name of this host in ACStor, [DEFAULT] host of acstor.conf. Unset: Ceilometer's.",
    ),
]


def register_opts(conf: Any) -> None:
    """Register the options of ``[acstor]``."""
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return (group, options) pairs (entry point of oslo-config-generator)."""
    return [(GROUP, OPTIONS)]
