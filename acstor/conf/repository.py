"""Options of what is put into the repository, whoever does it."""

from oslo_config import cfg

GROUP = "repository"
DEDUP_SCOPES = ("cloud", "project")
"""Values of ``[repository] dedup_scope``."""
PUBLIC_KEYS = "/etc/acstor/image-keys"
"""Directory of the trusted keys by default."""

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
    cfg.StrOpt(
        "signing_key",
        help=(
            "Controllers: file with the private key that signs the records of images ('acstor "
            "repository keygen' makes a pair). Of root or the registrar's user, mode 0600; any "
            "other is refused. The key of all controllers is the same. Set it when every host has "
            "the public key. Unset: records are not signed."
        ),
    ),
    cfg.StrOpt(
        "public_keys",
        default=PUBLIC_KEYS,
        help=(
            "Directory of the public keys that are trusted: files ending in .pub that only root "
            "may change. A signed record of an image is read only when one of them has signed it. "
            "Read again when it changes: a key that is taken out is not trusted any more, images "
            "that are attached on its word stay and are shown as unverified."
        ),
    ),
    cfg.BoolOpt(
        "require_signatures",
        default=False,
        help=(
            "Whether images whose records are not signed are refused on this machine. While it is "
            "false, whoever can write to the origin can put an unsigned record where this host "
            "has seen no signed one of the same image. Set it on all hosts, and where "
            "cinder-volume runs, as soon as 'acstor repository sign' has signed every record."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[repository]``."""
    conf.register_opts(OPTIONS, group=GROUP)
