"""Options of the weigher and the filter: group ``[acstor]`` of ``nova.conf``."""

from oslo_config import cfg

GROUP = "acstor"

OPTIONS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help=(
            "Message transport on which the agents tell the states of their hosts: [DEFAULT] "
            "transport_url of acstor.conf. Unset: Nova's own."
        ),
    ),
    cfg.FloatOpt(
        "state_ttl",
        default=35.0,
        min=1.0,
        max=3600.0,
        help=(
            "Seconds for which the state of a host counts. Keep it above three times [agent] "
            "state_interval of acstor.conf, so that two lost messages change nothing."
        ),
    ),
    cfg.FloatOpt(
        "boot_coverage_weight_multiplier",
        default=1.0,
        min=-1e6,
        max=1e6,
        help=(
            "How much it counts that a host holds the boot working set of the image. At 1.0 a host "
            "that holds all of it stands before one that holds nothing as far as, in Nova's RAM "
            "weigher, the host with most memory free before one with none. 0 turns it off. The "
            "metadata boot_coverage_weight_multiplier of an aggregate has precedence for its hosts."
        ),
    ),
    cfg.FloatOpt(
        "extra_traffic_weight_multiplier",
        default=0.5,
        min=-1e6,
        max=1e6,
        help=(
            "How much it counts that other traffic than ACStor's takes the network of a host. At "
            "1.0 a host on an idle link stands before one on a saturated link as far as, in Nova's "
            "RAM weigher, the host with most memory free before one with none. 0 turns it off. The "
            "metadata extra_traffic_weight_multiplier of an aggregate has precedence for its hosts."
        ),
    ),
    cfg.StrOpt(
        "data_plane_policy",
        default="avoid",
        choices=[
            (
                "avoid",
                "keep instances of registered images away from hosts that are known to be "
                "draining or to have no data plane, unless no other host is left",
            ),
            (
                "require",
                "put instances of images only on hosts that are known to have a data plane "
                "which serves",
            ),
            ("ignore", "let every host pass"),
        ],
        help=(
            "What DataPlaneFilter does with an instance whose flavor does not say. A flavor with "
            "the extra spec acstor:required=true is treated as 'require', one with "
            "acstor:required=false as 'ignore'."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[acstor]``; may be called any number of times."""
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator."""
    return [(GROUP, list(OPTIONS))]
