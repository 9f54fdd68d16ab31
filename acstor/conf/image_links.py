"""Options of the image links: how stock Nova comes to use the images of this host."""

from oslo_config import cfg

GROUP = "image_links"

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help=(
            "Whether the agent plants a link to each registered image in Nova's image cache on "
            "this host. Turned off again, links that no instance uses are removed."
        ),
    ),
    cfg.MultiStrOpt(
        "nova_config_file",
        default=["/etc/nova/nova.conf"],
        help=(
            "Configuration file of this host's nova-compute; repeat the option for each file that "
            "nova-compute is given with --config-file, in the same order. Only settings of the "
            "image cache are read. The agent must be allowed to read it."
        ),
    ),
    cfg.FloatOpt(
        "scan_interval",
        default=30.0,
        min=0.1,
        max=3600.0,
        help=(
            "Seconds between looks for which images the instances of this host use. Before a link "
            "is removed they are looked at in any case."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[image_links]``."""
    conf.register_opts(OPTIONS, group=GROUP)
