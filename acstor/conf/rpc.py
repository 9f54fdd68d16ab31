"""Options of what agents are asked over the message broker."""

from oslo_config import cfg

GROUP = "rpc"

OPTIONS = [
    cfg.ListOpt(
        "secrets",
        secret=True,
        default=[],
        help=(
            "Secrets with which calls to agents (volumes in use, preloads) are signed, the same on "
            "all hosts: the first one signs, and an agent takes what is signed with any of them, "
            "nothing else. At least 16 characters each, without commas: 'openssl rand -hex 32'. "
            "Cinder has it as acstor_rpc_secret. Unset: an agent takes every call, of everybody "
            "who may send in the broker's virtual host."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[rpc]``."""
    conf.register_opts(OPTIONS, group=GROUP)
