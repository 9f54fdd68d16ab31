"""Options of acstor-api: where it listens by itself, bounds of lists, quotas, Prometheus."""

from oslo_config import cfg

GROUP = "api"

OPTIONS = [
    cfg.HostAddressOpt(
        "bind_host",
        default="127.0.0.1",
        help=(
            "Address on which the program acstor-api listens. A WSGI server (uWSGI, gunicorn, "
            "mod_wsgi) that loads acstor.wsgi.api:application listens where its own configuration "
            "says."
        ),
    ),
    cfg.PortOpt(
        "bind_port",
        default=9480,
        help="Port on which the program acstor-api listens.",
    ),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        max=1000,
        help="Most items of one page of a list; also of one that asks for no limit.",
    ),
    cfg.IntOpt(
        "unfinished_tasks_max",
        default=100,
        min=0,
        max=100000,
        help=(
            "Most tasks that users of one project have asked for and that have not ended, as "
            "versions and restores. Whoever asks for one more gets 429 and is told to come back. "
            "Tasks of schedules and events do not count. 0: there is no bound, and one project can "
            "fill the database."
        ),
    ),
    cfg.BoolOpt(
        "use_unified_limits",
        default=False,
        help=(
            "Whether Keystone's unified limits bound what a project may have: acstor_versions, "
            "acstor_version_mib, acstor_schedules and acstor_export_mib. Register them first: what "
            "has no registered limit has the limit 0. [oslo_limit] names the endpoint and a user "
            "who has the role reader on the system. False: none of that is bounded."
        ),
    ),
    cfg.FloatOpt(
        "limits_max_age",
        default=60.0,
        min=1.0,
        max=3600.0,
        help="Seconds for which limits that Keystone told are believed.",
    ),
    cfg.FloatOpt(
        "cluster_max_age",
        default=2.0,
        min=0.1,
        max=60.0,
        help=(
            "Seconds for which the live state of the cluster that one viewer was shown is shown to "
            "the others; a process asks the hosts no more often, however many look."
        ),
    ),
    cfg.IntOpt(
        "downloads_max",
        default=4,
        min=0,
        max=1000,
        help=(
            "Most disks of versions that one process sends, whole or files of them, or compares by "
            "their files, at a time; of one project half of them. Each takes a thread of its WSGI "
            "server for as long as it lasts, and whoever wants files a process beside it. Whoever "
            "asks for one more is told to come back. 0: none is sent."
        ),
    ),
    cfg.IntOpt(
        "looks_max",
        default=4,
        min=0,
        max=1000,
        help=(
            "Most disks of versions that one process looks into for a short answer at a time: "
            "partitions, a page of a directory, the length of a file or of an image file; of one "
            "project half of them. They have places beside those of downloads_max, so that slow "
            "downloads keep nobody from looking; each takes a thread of its WSGI server and a "
            "process beside it for a minute at most. Whoever asks for one more is told to come "
            "back. 0: none is looked into."
        ),
    ),
    cfg.StrOpt(
        "metrics_targets_token",
        secret=True,
        default="",
        help=(
            "Secret with which Prometheus asks for /prometheus/targets (http_sd_configs with "
            "authorization credentials), which lists the metrics of all hosts. Empty: there is no "
            "such path."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[api]``."""
    conf.register_opts(OPTIONS, group=GROUP)
