"""Options of a back-end's section of ``cinder.conf``."""

from oslo_config import cfg

from acstor.conf.repository import DEDUP_SCOPES

OPTIONS = [
    cfg.StrOpt(
        "acstor_conf",
        default="/etc/acstor/acstor.conf",
        help=(
            "Configuration file of ACStor, for [origin] url and timeout. Not read when "
            "acstor_origin_url is set."
        ),
    ),
    cfg.StrOpt(
        "acstor_origin_url",
        help=(
            "Origin with the repository that holds the volumes, such as posix:///srv/acstor: what "
            "[origin] url of acstor.conf says on the compute hosts."
        ),
    ),
    cfg.FloatOpt(
        "acstor_origin_timeout",
        default=30.0,
        min=0.1,
        max=3600.0,
        help=(
            "Seconds within which a call to the origin is repeated while it is unavailable. With "
            "acstor_conf, [origin] timeout of that file counts."
        ),
    ),
    cfg.StrOpt(
        "acstor_dedup_scope",
        choices=DEDUP_SCOPES,
        help=(
            "Who shares chunks that are written to volumes, as [repository] dedup_scope of "
            "acstor.conf says it on the controllers. Unset: what acstor_conf says, or cloud where "
            "that is not read."
        ),
    ),
    cfg.StrOpt(
        "acstor_public_keys",
        help=(
            "Directory of the public keys that may have signed the images' records, as "
            "[repository] public_keys of acstor.conf. Unset: what acstor_conf says, or "
            "/etc/acstor/image-keys where that is not read. Volumes are made without a copy of "
            "images whose records are signed with one of them; other signed images are copied "
            "from Glance."
        ),
    ),
    cfg.BoolOpt(
        "acstor_require_signatures",
        help=(
            "Whether images whose records are not signed are copied from Glance as well, as "
            "[repository] require_signatures of acstor.conf. Unset: what acstor_conf says, or "
            "false."
        ),
    ),
    cfg.StrOpt(
        "acstor_transport_url",
        secret=True,
        help=(
            "Message transport on which the agents listen: [DEFAULT] transport_url of acstor.conf. "
            "Unset: Cinder's own."
        ),
    ),
    cfg.StrOpt(
        "acstor_rpc_secret",
        secret=True,
        help=(
            "Secret with which calls to the agents are signed: the first of [rpc] secrets of "
            "acstor.conf on the compute hosts. Unset: they are not signed."
        ),
    ),
    cfg.FloatOpt(
        "acstor_agent_timeout",
        default=30.0,
        min=1.0,
        max=600.0,
        help="Seconds that an agent may take to answer.",
    ),
    cfg.FloatOpt(
        "acstor_push_timeout",
        default=150.0,
        min=1.0,
        max=3600.0,
        help=(
            "Seconds that a host may take to push the writes of a volume to the origin before a "
            "snapshot or a clone of it."
        ),
    ),
    cfg.FloatOpt(
        "acstor_freeze_timeout",
        default=20.0,
        min=1.0,
        max=60.0,
        help=(
            "Seconds for which the writes of a group's volumes may be held while a consistent "
            "snapshot of the group is taken. What takes longer fails, and guests go on."
        ),
    ),
    cfg.BoolOpt(
        "acstor_multiattach_on_one_host",
        default=False,
        help=(
            "Whether volumes of multi-attach types may be attached to several instances of one "
            "host. An attachment on a second host is refused all the same: only one host at a "
            "time may write a volume."
        ),
    ),
    cfg.StrOpt(
        "acstor_temporary_directory",
        help=(
            "Directory for images that are being copied into volumes. Unset: [DEFAULT] "
            "image_conversion_dir. Needs room for the largest image, unpacked."
        ),
    ),
    cfg.StrOpt(
        "acstor_cache_directory",
        default="$state_path/acstor",
        help=(
            "Directory for what is known of the packs in the origin, so that copying an image "
            "does not read it again. Empty: nothing is kept."
        ),
    ),
    cfg.IntOpt(
        "acstor_listed_images_max",
        default=2048,
        min=0,
        max=65536,
        help=(
            "Most registered images whose ids are told to the scheduler, for AcstorImageWeigher. "
            "0: none."
        ),
    ),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator, in the section that Cinder's own are in."""
    return [("backend_defaults", list(OPTIONS))]
