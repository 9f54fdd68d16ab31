"""Options of volumes in the services: group ``[acstor]`` of ``nova.conf`` and ``cinder.conf``."""

from oslo_config import cfg

GROUP = "acstor"

OPTIONS = [
    cfg.StrOpt(
        "volume_socket",
        default="/run/acstor/volumes.sock",
        help=(
            "Unix socket on which the data plane of this host opens and closes volumes: [volumes] "
            "control_socket of acstor.conf. This service's user must be in the group [volumes] "
            "control_group."
        ),
    ),
    cfg.IntOpt(
        "volume_reconnect_delay",
        default=300,
        min=1,
        max=86400,
        help=(
            "Seconds for which QEMU keeps the requests of a guest while the data plane of its "
            "host is away, before the guest sees I/O errors. Counts for disks that are attached "
            "from now on."
        ),
    ),
    cfg.FloatOpt(
        "volume_extend_timeout",
        default=30.0,
        min=1.0,
        max=600.0,
        help="Seconds that a running guest's disk may take to see that its volume was extended.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[acstor]``; may be called any number of times."""
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator."""
    return [(GROUP, list(OPTIONS))]
