"""Options of what is put into the repository, whoever does it."""

from oslo_config import cfg

GROUP = "repository"
DEDUP_SCOPES = ("cloud", "project")
"""Values of ``[repository] dedup_scope``."""

OPTIONS = [
    cfg.StrOpt(
        "dedup_scope",
        default="cloud",
        choices=[
            ("cloud", "everybody: the same content is stored and cached once"),
            (
                "project",
                "each project for itself, and content of public images everybody: no project can "
                "tell by timing whether another one has the same content, and what two projects "
                "have is stored and cached twice",
            ),
        ],
        help=(
            "Who shares chunks of the same content. Counts for images that are registered from "
            "now on, and for what is written to volumes that are attached from now on; what is "
            "there keeps its names. The same on all controllers. project needs a repository of "
            "format version 4 ('acstor repository upgrade')."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[repository]``."""
    conf.register_opts(OPTIONS, group=GROUP)
