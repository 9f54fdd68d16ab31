"""Options of the policy service: samples from Ceilometer."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "ceilometer"

OPTIONS = [
    cfg.HostAddressOpt(
        "listen_address",
        help=(
            "Address on which Ceilometer's http publisher reaches the policy service "
            "(POST /v1/samples). Unset: it is not listened."
        ),
    ),
    cfg.PortOpt(
        "listen_port",
        default=9475,
        help="TCP port of it. 0: any free one.",
    ),
    cfg.StrOpt(
        "username",
        default="ceilometer",
        help="User name that the publisher's URL has.",
    ),
    cfg.StrOpt(
        "password",
        secret=True,
        help="Password that the publisher's URL has. Needed with listen_address, or password_file.",
    ),
    cfg.StrOpt(
        "password_file",
        help="File whose first line is the password, in place of password.",
    ),
    cfg.StrOpt(
        "cert_file",
        help="Certificate chain (PEM) of the receiver. Unset: in the clear.",
    ),
    cfg.StrOpt(
        "key_file",
        help="Private key (PEM) of cert_file.",
    ),
    cfg.Opt(
        "body_max",
        type=types.ByteSize(64 * types.KIB, 64 * types.MIB),
        default="4MiB",
        help="Bytes of one request at most.",
    ),
    cfg.IntOpt(
        "connections_max",
        default=32,
        min=1,
        max=1024,
        help="Requests that are answered at a time; more are not accepted.",
    ),
    cfg.FloatOpt(
        "request_timeout",
        default=10.0,
        min=0.1,
        max=300.0,
        help="Seconds that a request may take, from its connection to the end of the answer.",
    ),
    cfg.BoolOpt(
        "notifications",
        default=False,
        help=(
            "Whether samples are heard on the notification bus (transport_url, or "
            "[oslo_messaging_notifications] transport_url). The alternative to listen_address."
        ),
    ),
    cfg.StrOpt(
        "notification_topic",
        default="notifications",
        help="Topic on which Ceilometer's polling agents notify.",
    ),
    cfg.StrOpt(
        "control_exchange",
        default="ceilometer",
        help="Exchange of Ceilometer: its control_exchange.",
    ),
    cfg.StrOpt(
        "telemetry_secret",
        secret=True,
        help=(
            "What samples on the bus are signed with: Ceilometer's [publisher] telemetry_secret. "
            "Needed with notifications."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[ceilometer]``."""
    conf.register_opts(OPTIONS, group=GROUP)
