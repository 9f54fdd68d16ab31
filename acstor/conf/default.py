"""Options outside any group: who this host is, where its state is kept."""

import socket

from oslo_config import cfg

GROUP = "DEFAULT"

OPTIONS = [
    cfg.StrOpt(
        "host",
        default=socket.gethostname().lower(),
        sample_default="<host name>",
        max_length=240,
        regex=r"[a-z0-9][a-z0-9_.-]*\Z",
        help=(
            "Name of this host: its identity in the ring and in the membership. Must be unique in "
            "the deployment and must not change while the host is in the ring."
        ),
    ),
    cfg.StrOpt(
        "topology",
        default="",
        max_length=255,
        regex=r"([A-Za-z0-9_.@-]{1,63}(/[A-Za-z0-9_.@-]{1,63}){0,3})?\Z",
        help=(
            "Where this host stands in the network, as the switches above it from the root down, "
            "such as pod-2/rack-17. All hosts have the same number of parts. Empty: unknown."
        ),
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/acstor",
        help=(
            "Directory of what this host keeps across restarts. Other paths refer to it as "
            "$state_path."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options that belong to no group."""
    conf.register_opts(OPTIONS)
