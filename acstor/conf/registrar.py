"""Options of the registrar: images that it registers, intervals, resources."""

from oslo_config import cfg

from acstor.conf import metrics, types

GROUP = "registrar"
VISIBILITIES = ("public", "community", "shared", "private")
"""Visibilities of images in Glance."""

OPTIONS = [
    cfg.FloatOpt(
        "interval",
        default=60.0,
        min=0.1,
        max=86400.0,
        help=(
            "Seconds between two comparisons of all images of Glance with the image registry. They "
            "make up for notifications that were lost."
        ),
    ),
    cfg.ListOpt(
        "notification_topics",
        default=["notifications"],
        help=(
            "Topics on which Glance sends its notifications ([oslo_messaging_notifications] "
            "topics in glance-api.conf). They are heard where transport_url is set, through a "
            "queue of the registrar's own: nobody else loses any."
        ),
    ),
    cfg.StrOpt(
        "notification_exchange",
        default="glance",
        help="Exchange on which Glance sends them (control_exchange in glance-api.conf).",
    ),
    cfg.StrOpt(
        "notification_pool",
        default="acstor-registrar",
        regex=r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        help=(
            "Name of that queue, the same for all registrars of a deployment. It keeps what "
            "arrives while none runs; delete it in the broker when ACStor is removed for good."
        ),
    ),
    cfg.ListOpt(
        "nova_notification_topics",
        default=[],
        help=(
            "Topics on which Nova sends its versioned notifications ([notifications] "
            "versioned_notifications_topics in nova.conf: versioned_notifications). They "
            "say which servers are migrated, resized or evacuated, and where to: the hosts then "
            "preload what they read ([agent] hand_over_warm_sets); and which images Nova is asked "
            "to cache ([preload] nova_cache_images). Empty: nobody listens, and such servers come "
            "cold."
        ),
    ),
    cfg.StrOpt(
        "nova_notification_exchange",
        default="nova",
        help="Exchange on which Nova sends them (control_exchange in nova.conf).",
    ),
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        max=64,
        help="Images that are registered at the same time.",
    ),
    cfg.Opt(
        "job_memory",
        type=types.ByteSize(types.GIB, 16 * types.TIB),
        default="8GiB",
        help=(
            "Most address space of the process that registers an image; each of the workers has "
            "one. It holds the digests of all chunks in the origin: count 1 GiB, four times "
            "[registration] pack_size for each of [registration] workers, and 100 bytes for each "
            "different chunk. 8 GiB suffice for 4 TiB in chunks of 64 KiB; raise it, and "
            "MemoryMax of the service, before the origin holds more. A registration that wants "
            "more fails and says so."
        ),
    ),
    cfg.IntOpt(
        "niceness",
        default=10,
        min=0,
        max=19,
        help="By how much the process yields the processors to others (nice). 0: not at all.",
    ),
    cfg.Opt(
        "rate_max",
        type=types.ByteSize(),
        default=0,
        help=(
            "Most bytes per second that are downloaded, and most that are read and stored, by all "
            "registrations together. 0: no limit."
        ),
    ),
    cfg.StrOpt(
        "spool_path",
        default="$state_path/spool",
        help=(
            "Directory for downloaded images, removed as soon as each is registered. It needs "
            "room for the largest images, one for each worker."
        ),
    ),
    cfg.Opt(
        "spool_reserve",
        type=types.ByteSize(),
        default="1GiB",
        help="Bytes of its file system that are left free, whatever is downloaded.",
    ),
    cfg.StrOpt(
        "rbd_user",
        default="",
        help=(
            "Client of Ceph, without 'client.', that may read the pools in which Glance has its "
            "images: images of format raw are then read from there, without their holes, instead "
            "of over HTTP. Needs the package python3-rbd, and a Glance that tells this service's "
            "user the locations of images (show_multiple_locations or show_image_direct_url). "
            "Empty: over HTTP."
        ),
    ),
    cfg.StrOpt(
        "rbd_conf",
        default="/etc/ceph/ceph.conf",
        help="Path of ceph.conf of that cluster; it says where the client's keyring is.",
    ),
    cfg.ListOpt(
        "rbd_pools",
        default=["images"],
        help=(
            "Pools that Glance stores images in (rbd_store_pool). A location in another pool is "
            "not believed, since users may be allowed to write locations."
        ),
    ),
    cfg.FloatOpt(
        "rbd_timeout",
        default=10.0,
        min=0.5,
        max=600.0,
        help="Seconds that connecting to that cluster, and each operation there, may take.",
    ),
    cfg.Opt(
        "size_max",
        type=types.ByteSize(types.MIB),
        default="1TiB",
        help="Images whose file is larger are left to Nova.",
    ),
    cfg.Opt(
        "disk_size_max",
        type=types.ByteSize(types.MIB, 64 * types.TIB),
        default="256GiB",
        help=(
            "Images of larger disks are left to Nova, however small their files are. Each host "
            "keeps the manifest of every image on its disk. In a repository of version 6 that has "
            "49 bytes for each chunk with content: at most 196 MiB for 256 GiB in chunks of 64 "
            "KiB. In an older one it has 40 bytes for each chunk of the disk, empty or not, and "
            "is in memory while the image is in use. Images that were left before the limit was "
            "raised are tried again after 'acstor registry retry'."
        ),
    ),
    cfg.StrOpt(
        "signed_images",
        default="leave",
        choices=[
            ("leave", "leave them to Nova, which verifies the signature when it downloads"),
            ("register", "register them; nobody verifies the signature, only the checksum"),
        ],
        help=(
            "What becomes of images with a signature (img_signature). An image that is registered "
            "is not downloaded by Nova, so that [glance] verify_glance_signatures in nova.conf "
            "has no effect on it."
        ),
    ),
    cfg.Opt(
        "visibility",
        type=types.Choices(VISIBILITIES),
        default=list(VISIBILITIES),
        help=(
            "Images of these visibilities are registered; others are left to Nova. What is "
            "registered already and left by visibility, projects or snapshots leaves the hosts "
            "when no instance uses it, after withdraw_grace."
        ),
    ),
    cfg.ListOpt(
        "projects",
        default=[],
        help=(
            "Ids of the projects whose images are registered, public ones too; images of others "
            "are left to Nova. Empty: those of all projects."
        ),
    ),
    cfg.StrOpt(
        "snapshots",
        default="leave",
        choices=[
            ("leave", "leave them to Nova, which downloads them to the hosts that need them"),
            ("register", "register them as any other image"),
        ],
        help=(
            "What becomes of images that Nova makes of servers (image_type is snapshot or backup), "
            "those of shelved servers among them. Most are started once or never. One that others "
            "start servers from is registered when its property image_type is removed."
        ),
    ),
    cfg.ListOpt(
        "pin_projects",
        default=[],
        help=(
            "Ids of the projects whose images are kept whole on every host where their property "
            "acstor_pin is true. It is ignored on images of others, public ones excepted: all pins "
            "together have a quarter of each store."
        ),
    ),
    cfg.FloatOpt(
        "retry_delay",
        default=30.0,
        min=0.1,
        max=86400.0,
        help="Seconds after which a failed registration is tried again; doubles with each failure.",
    ),
    cfg.FloatOpt(
        "retry_delay_max",
        default=3600.0,
        min=0.1,
        max=604800.0,
        help="Longest time, seconds, between two attempts to register an image.",
    ),
    cfg.FloatOpt(
        "withdraw_grace",
        default=3600.0,
        min=0.0,
        max=31536000.0,
        help=(
            "Seconds for which an image that was deleted or deactivated in Glance, or is not "
            "wanted any more (visibility, projects, snapshots, size_max), stays on the hosts after "
            "the last instance that uses it is gone."
        ),
    ),
    cfg.FloatOpt(
        "gc_interval",
        default=21600.0,
        min=0.0,
        max=31536000.0,
        help="Seconds between two garbage collections. 0: none; run 'acstor gc' instead.",
    ),
    *metrics.options(9473),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[registrar]``."""
    conf.register_opts(OPTIONS, group=GROUP)
