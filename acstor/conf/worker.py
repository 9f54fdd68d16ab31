"""Options of the worker: tasks of versions, schedules."""

from oslo_config import cfg

from acstor.conf import metrics

GROUP = "worker"

OPTIONS = [
    cfg.StrOpt(
        "flow_connection",
        secret=True,
        default="",
        help=(
            "Database in which flows remember how far they are, another one than [database] "
            "connection, the same for every acstor-worker: mysql+pymysql://USER:PASSWORD@HOST/"
            "acstor_flows. 'acstor database upgrade' makes its tables. Loss of it has tasks that "
            "are under way begin anew. Empty: there is none, and acstor-worker does not start."
        ),
    ),
    cfg.IntOpt(
        "jobs",
        default=16,
        min=1,
        max=1024,
        help=(
            "Tasks that a worker is at at the same time. Most of that time they wait for hosts, "
            "which have limits of their own."
        ),
    ),
    cfg.FloatOpt(
        "lease_seconds",
        default=60.0,
        min=5.0,
        max=3600.0,
        help=(
            "Seconds after which another worker goes on with the tasks of one that died. A lease "
            "is renewed three times in that."
        ),
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=10.0,
        min=0.1,
        max=600.0,
        help="Seconds between two looks for tasks that wait.",
    ),
    cfg.FloatOpt(
        "tick_interval",
        default=30.0,
        min=1.0,
        max=3600.0,
        help="Seconds between two looks for slots of schedules that are due.",
    ),
    cfg.FloatOpt(
        "purge_interval",
        default=3600.0,
        min=60.0,
        max=86400.0,
        help=(
            "Seconds between two removals of what is not kept any more: tasks and runs of "
            "schedules after 30 days, idempotency keys after 24 hours."
        ),
    ),
    cfg.FloatOpt(
        "index_interval",
        default=86400.0,
        min=60.0,
        max=31536000.0,
        help=(
            "Seconds between two comparisons of the index of versions with the origin, which "
            "read every record. They make up for what a death left behind."
        ),
    ),
    cfg.FloatOpt(
        "call_timeout",
        default=20.0,
        min=1.0,
        max=600.0,
        help="Seconds for which a host's answer to one call is waited for.",
    ),
    cfg.ListOpt(
        "nova_notification_topics",
        default=[],
        help=(
            "Topics on which Nova sends its versioned notifications ([notifications] "
            "versioned_notifications_topics in nova.conf: versioned_notifications). They say "
            "when a server is stopped, resized, rebuilt or deleted; a version is taken then where "
            "acstor:version_on asks for it. Empty: nobody listens, and none is."
        ),
    ),
    cfg.StrOpt(
        "nova_notification_exchange",
        default="nova",
        help="Exchange on which Nova sends them (control_exchange in nova.conf).",
    ),
    cfg.StrOpt(
        "notification_pool",
        default="acstor-worker",
        regex=r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        help=(
            "Name of the queue for them, the same for all workers of a deployment. It keeps what "
            "arrives while none runs; delete it in the broker when ACStor is removed for good."
        ),
    ),
    *metrics.options(9476),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[worker]``."""
    conf.register_opts(OPTIONS, group=GROUP)
