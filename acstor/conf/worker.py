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
        help=(
            "Seconds between two looks for tasks that wait. The API tells workers of each one that "
            "it queues, where it has [DEFAULT] transport_url; looks find what is not told."
        ),
    ),
    cfg.FloatOpt(
        "tick_interval",
        default=30.0,
        min=1.0,
        max=3600.0,
        help="Seconds between two looks for slots of schedules that are due.",
    ),
    cfg.IntOpt(
        "own_tasks_max",
        default=1000,
        min=0,
        max=1000000,
        help=(
            "Most tasks of schedules and events of one project that have not ended. A schedule's "
            "slot waits beyond that, and the next takes its place; a version at an event of a "
            "server is taken up to twice as many. 0: there is no bound."
        ),
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
        "left_image_grace",
        default=86400.0,
        min=3600.0,
        max=1728000.0,
        help=(
            "Seconds for which an image in Glance is left alone whose task has ended and that is "
            "not its result. After that the sweep of purge_interval deletes it, where no version "
            "boots from it and no server is of it. Tasks are known for 30 days, and images of "
            "others are left alone."
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
    cfg.FloatOpt(
        "follow_interval",
        default=3600.0,
        min=60.0,
        max=604800.0,
        help=(
            "Seconds between two looks at all servers of Nova, after which each host is told which "
            "of its servers ask for versions by their metadata, or by the defaults of their "
            "project, so that it keeps their disks when Nova deletes them. Hosts are told of "
            "changes as Nova tells of them; it tells nobody of changed metadata. Only with "
            "nova_notification_topics."
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
