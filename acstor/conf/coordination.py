"""Options of membership and locks (tooz)."""

from oslo_config import cfg

GROUP = "coordination"

OPTIONS = [
    cfg.StrOpt(
        "backend_url",
        secret=True,
        default="file://$state_path/coordination",
        help=(
            "Where the hosts find each other, as a tooz URL: file:// for one machine or a shared "
            "directory, etcd3+http://, redis:// or zookeeper:// for a deployment. Of an etcd "
            "cluster name the endpoints, separated by spaces or commas, with the same path and "
            "query: when one fails, the next one is used."
        ),
    ),
    cfg.StrOpt(
        "group",
        default="acstor",
        regex=r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        help="Name of the group that the hosts of one deployment join.",
    ),
    cfg.FloatOpt(
        "heartbeat_interval",
        default=2.0,
        min=0.1,
        max=60.0,
        help="Seconds between heartbeats; at most half of member_timeout.",
    ),
    cfg.IntOpt(
        "member_timeout",
        default=10,
        min=1,
        max=600,
        help=(
            "Seconds without a heartbeat after which a host no longer counts as a member, and a "
            "lock as held. A membership_timeout or lock_timeout that backend_url names (file:// "
            "and zookeeper://: timeout) has precedence; of one that is named twice, the last."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[coordination]``."""
    conf.register_opts(OPTIONS, group=GROUP)
