"""Options of the weigher: in ``[DEFAULT]`` of ``cinder.conf``, where Cinder's own are."""

from oslo_config import cfg

OPTIONS = [
    cfg.FloatOpt(
        "acstor_image_weight_multiplier",
        default=1.0,
        min=-1e6,
        max=1e6,
        help=(
            "How much it counts that the repository of a back-end has the image that a volume is "
            "made from. At 1.0 a back-end that has it stands before one that lacks it as far as, "
            "in Cinder's capacity weigher, the one with most free space before the one with "
            "least. 0 turns it off."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options; may be called any number of times."""
    conf.register_opts(OPTIONS)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator."""
    return [("DEFAULT", list(OPTIONS))]
