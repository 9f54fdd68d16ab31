"""Options of members that sleep: their machines, the budget of power, bounds."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "power"

OPTIONS = [
    cfg.StrOpt(
        "members_file",
        default="",
        help=(
            "File in TOML with the machine of each member of the origin: the watts that it takes, "
            "and the driver that switches it. The same on all controllers. Empty: members never "
            "sleep."
        ),
    ),
    cfg.StrOpt(
        "policy",
        default="none",
        help=(
            "Which members sleep: none (those that an operator sends to sleep), budget (as few as "
            "the budget demands), or another plug-in of acstor.policy.replicas."
        ),
    ),
    cfg.StrOpt(
        "budget",
        default="",
        help=(
            "Where the budget of power is read: file:///path or an http or https URL, whose "
            "content is one number; or prometheus+https://host:port, which is asked for "
            "budget_query. Empty: there is none."
        ),
    ),
    cfg.StrOpt(
        "budget_query",
        default="",
        help="Query in PromQL whose one result is the budget, where Prometheus is asked.",
    ),
    cfg.StrOpt(
        "budget_unit",
        default="watts",
        choices=[
            ("watts", "power that the members which are on may take together"),
            ("members", "number of members that may be on, the home included"),
        ],
        help="Unit of the budget.",
    ),
    cfg.FloatOpt(
        "budget_max_age",
        default=600.0,
        min=1.0,
        max=86400.0,
        help=(
            "Seconds for which the last good budget counts while its source cannot be read. Then "
            "it is unknown, and all members are woken."
        ),
    ),
    cfg.FloatOpt(
        "budget_timeout",
        default=5.0,
        min=0.1,
        max=60.0,
        help="Seconds within which the source of the budget has to answer, each of three times.",
    ),
    cfg.StrOpt(
        "budget_token_file",
        default="",
        help="File with a bearer token for the source, readable by its owner only.",
    ),
    cfg.StrOpt(
        "budget_ca_file",
        default="",
        help="Authorities that are believed of the source; empty: those of the system.",
    ),
    cfg.IntOpt(
        "members_min",
        default=1,
        min=1,
        max=4,
        help="Members that are always on, the home among them, whatever budget or operators say.",
    ),
    cfg.FloatOpt(
        "min_on",
        default=1800.0,
        min=0.0,
        max=604800.0,
        help="Seconds for which a member is on at least before it sleeps for a budget.",
    ),
    cfg.FloatOpt(
        "min_off",
        default=600.0,
        min=0.0,
        max=604800.0,
        help="Seconds for which a member is off at least before it wakes for a budget.",
    ),
    cfg.FloatOpt(
        "margin",
        default=0.05,
        min=0.0,
        max=0.9,
        help="Part of the budget that has to be left when one more member wakes.",
    ),
    cfg.IntOpt(
        "attempts",
        default=3,
        min=1,
        max=20,
        help="Attempts of each switch. When all have failed, an operator is needed.",
    ),
    cfg.FloatOpt(
        "settle_time",
        default=300.0,
        min=90.0,
        max=7200.0,
        help=(
            "Seconds that a machine may take to be off, or to answer, before it is switched once "
            "more. Choose more than it takes to boot and to serve its store."
        ),
    ),
    cfg.StrOpt(
        "journal_path",
        default="$state_path/registrar/power.jsonl",
        help="Where every decision is written with all that it was made from.",
    ),
    cfg.Opt(
        "journal_size",
        type=types.ByteSize(types.MIB, types.TIB),
        default="4MiB",
        help="Bytes at which the journal is put aside and begun anew; the last four are kept.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[power]``."""
    conf.register_opts(OPTIONS, group=GROUP)
