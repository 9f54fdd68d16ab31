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
    cfg.BoolOpt(
        "use_unified_limits",
        default=False,
        help=(
            "Whether Keystone's unified limits bound what a project may have: acstor_versions, "
            "acstor_version_mib and acstor_schedules. Register them first: what has no registered "
            "limit has the limit 0. [oslo_limit] names the endpoint and a user who has the role "
            "reader on the system. False: nothing is bounded."
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
