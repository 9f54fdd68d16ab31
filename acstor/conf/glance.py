"""Options of Glance: where its images are read from, and for how long it is waited for.

How it is found in the service catalogue is said by keystoneauth's options (see ``keystone.py``).
"""

from oslo_config import cfg

from acstor.conf import nova

GROUP = "glance"
SERVICE_TYPE = "image"

OPTIONS = [
    cfg.StrOpt(
        "filesystem_store_datadir",
        default="",
        help=(
            "Directory of Glance's file store, as in glance-api.conf, where this machine has it "
            "mounted: images are then read from there instead of over HTTP. Empty: over HTTP."
        ),
    ),
    cfg.FloatOpt(
        "connect_timeout",
        default=10.0,
        min=0.1,
        max=600.0,
        help="Seconds that a connection to Glance may take.",
    ),
    cfg.FloatOpt(
        "read_timeout",
        default=60.0,
        min=0.1,
        max=3600.0,
        help="Seconds within which Glance must send something, be it an answer or more data.",
    ),
    cfg.FloatOpt(
        "request_deadline",
        default=180.0,
        min=0.1,
        max=86400.0,
        help=(
            "Seconds within which a request is repeated while Glance is away or fails. Data of "
            "images has its own: download_deadline."
        ),
    ),
    cfg.FloatOpt(
        "download_deadline",
        default=14400.0,
        min=1.0,
        max=604800.0,
        help="Seconds that the download of one image may take, all attempts together.",
    ),
    cfg.IntOpt(
        "attempts",
        default=5,
        min=1,
        max=100,
        help="Most attempts of one request, or of a download without any progress.",
    ),
    cfg.IntOpt(
        "page_size",
        default=200,
        min=1,
        max=1000,
        help="Images asked for at once in a listing; Glance may send fewer (its api_limit_max).",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[glance]``, without keystoneauth's."""
    conf.register_opts(OPTIONS, group=GROUP)


def service_options() -> list[cfg.Opt]:
    """Return the options of the adapter."""
    return nova.adapter_options(SERVICE_TYPE)
