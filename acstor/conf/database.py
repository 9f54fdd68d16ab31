"""Options of the database of versions."""

from oslo_config import cfg

GROUP = "database"

OPTIONS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        default="",
        help=(
            "Database of versions' index, schedules and tasks, the same for every acstor-api and "
            "acstor-worker, as SQLAlchemy names one: mysql+pymysql://USER:PASSWORD@HOST/acstor. "
            "'acstor database upgrade' makes its tables. Loss of it loses schedules and what was "
            "under way; versions are in the origin, and 'acstor version index rebuild' lists "
            "them again. Empty: there is none, and neither program starts."
        ),
    ),
    cfg.IntOpt(
        "max_pool_size",
        default=5,
        min=1,
        max=1000,
        help="Connections that a process keeps open. Not with SQLite.",
    ),
    cfg.IntOpt(
        "max_overflow",
        default=50,
        min=0,
        max=10000,
        help="Connections beyond these that it opens when all are in use.",
    ),
    cfg.IntOpt(
        "pool_timeout",
        default=10,
        min=1,
        max=600,
        help="Seconds for which it waits for one of them.",
    ),
    cfg.IntOpt(
        "connection_recycle_time",
        default=3600,
        min=1,
        max=86400,
        help=(
            "Seconds after which a connection is opened anew: fewer than the server's, or a "
            "proxy's, own limit."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[database]``."""
    conf.register_opts(OPTIONS, group=GROUP)
