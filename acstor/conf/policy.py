"""Options of the policy service: how it weighs hosts, when it changes something."""

from oslo_config import cfg

from acstor.conf import metrics, types

GROUP = "policy"

OPTIONS = [
    cfg.FloatOpt(
        "interval",
        default=10.0,
        min=0.1,
        max=3600.0,
        help=(
            "Seconds between two collections of how busy the hosts are; not below [agent] "
            "state_interval of the hosts. What is counted in collections below lasts this long."
        ),
    ),
    cfg.StrOpt(
        "weights",
        default="headroom",
        help=(
            "How hosts are weighed: headroom (by the bandwidth that their traffic leaves), "
            "equation1 (inversely to their traffic, as in the paper), or another plug-in of "
            "acstor.policy.weights."
        ),
    ),
    cfg.FloatOpt(
        "weight_lambda",
        default=1.67,
        min=0.01,
        max=1000.0,
        help="The factor of Equation (1); it changes nothing but rounding.",
    ),
    cfg.StrOpt(
        "traffic",
        choices=[
            ("in", "what a host receives"),
            ("out", "what it sends"),
            ("sum", "both together"),
            ("max", "the greater of both"),
        ],
        help=(
            "Which extra traffic counts for weights. Unset: what the plug-in takes by itself (sum "
            "for equation1, out for headroom)."
        ),
    ),
    cfg.FloatOpt(
        "traffic_floor",
        min=0.001,
        max=1.0,
        help=(
            "Part of its link: what equation1 takes each host to use at least, so that idle hosts "
            "are alike (unset: 0.05), or headroom takes it to have left at least (unset: 0.005)."
        ),
    ),
    cfg.FloatOpt(
        "weight_floor",
        default=0.005,
        min=0.0001,
        max=1.0,
        help="Least weight of a host, as a part of an ordinary host's.",
    ),
    cfg.FloatOpt(
        "weight_ceiling",
        default=4.0,
        min=1.0,
        max=100.0,
        help="Largest weight of a host, in ordinary hosts'.",
    ),
    cfg.FloatOpt(
        "overload",
        default=0.8,
        min=0.001,
        max=1.0,
        help="Part of a link, busy in one direction, from which on its host is overloaded.",
    ),
    cfg.FloatOpt(
        "overload_extra_min",
        default=0.1,
        min=0.0,
        max=1.0,
        help=(
            "Part of the link that extra traffic alone must use in that direction: a link that "
            "the data plane alone makes busy is no reason to change weights."
        ),
    ),
    cfg.IntOpt(
        "successive",
        default=2,
        min=1,
        max=100,
        help="Collections in a row in which a host must be overloaded before weights change.",
    ),
    cfg.IntOpt(
        "cool_down",
        default=2,
        min=0,
        max=1000,
        help="Collections after a change of weights in which there is no other.",
    ),
    cfg.FloatOpt(
        "moved_share_max",
        default=0.34,
        min=0.01,
        max=1.0,
        help="Largest part of the ring that one change moves.",
    ),
    cfg.FloatOpt(
        "hysteresis",
        default=0.2,
        min=0.0,
        max=1.0,
        help="By how much of an ordinary host's weight a host must be off to be relieved.",
    ),
    cfg.IntOpt(
        "quiet_period",
        deprecated_name="calm_after",
        default=6,
        min=1,
        max=1000,
        help="Collections in a row without any busy host after which weights go back.",
    ),
    cfg.StrOpt(
        "thresholds",
        default="none",
        help=(
            "How the distance threshold is chosen: none (each data plane's configuration says), "
            "algorithm2 (as in the paper), uplinks (by the loads of links), or another plug-in of "
            "acstor.policy.thresholds."
        ),
    ),
    cfg.StrOpt(
        "topology_file",
        help="The declared topology, TOML; needed where thresholds are chosen.",
    ),
    cfg.IntOpt(
        "threshold_min",
        default=3,
        min=1,
        max=255,
        help=(
            "Least threshold, hops. At 1, which the paper allows, every read that the host cannot "
            "serve itself falls on the origin."
        ),
    ),
    cfg.IntOpt(
        "threshold_max",
        min=1,
        max=255,
        help=(
            "The threshold while no switch is overloaded, and the largest; a decision counts "
            "instead of [readpath] distance_threshold, so give both the same. 3 keeps reads in the "
            "rack: right where the uplinks of racks are much slower than what their hosts may read "
            "from the origin together. Unset: no candidate is too far then."
        ),
    ),
    cfg.FloatOpt(
        "switch_overload",
        default=0.8,
        min=0.001,
        max=1.0,
        help="Part of its bandwidth from which on a switch is overloaded.",
    ),
    cfg.StrOpt(
        "forecast",
        default="none",
        help=(
            "How traffic is taken to go on: none, holt (a damped trend), or another plug-in of "
            "acstor.policy.forecasts."
        ),
    ),
    cfg.IntOpt(
        "horizon",
        default=1,
        min=1,
        max=100,
        help="Collections that a forecast looks ahead.",
    ),
    cfg.StrOpt(
        "journal_path",
        default="$state_path/policy/journal.jsonl",
        help="Where every decision is written with all that it was made from.",
    ),
    cfg.Opt(
        "journal_size",
        type=types.ByteSize(types.MIB, types.TIB),
        default="64MiB",
        help="Bytes at which the journal is put aside and begun anew.",
    ),
    cfg.IntOpt(
        "journal_files",
        default=8,
        min=1,
        max=1000,
        help="Files of the journal that are kept.",
    ),
    *metrics.options(9474),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[policy]``."""
    conf.register_opts(OPTIONS, group=GROUP)
