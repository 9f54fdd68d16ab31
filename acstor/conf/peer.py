"""Options of the peer protocol: addresses, TLS, limits."""

from oslo_config import cfg

from acstor.conf import types

GROUP = "peer"

OPTIONS = [
    cfg.HostAddressOpt(
        "listen_address",
        default="0.0.0.0",  # noqa: S104 - peers are other hosts; TLS is on by default
        help="Address on which peers are served.",
    ),
    cfg.PortOpt(
        "listen_port",
        default=7420,
        help="TCP port on which peers are served. 0: any free one.",
    ),
    cfg.HostAddressOpt(
        "advertise_address",
        help=(
            "Address under which other hosts reach this one. Unset: listen_address, or where "
            "that is a wildcard the address that the host's name resolves to."
        ),
    ),
    cfg.BoolOpt(
        "tls_enabled",
        default=True,
        help="Whether peers authenticate each other by TLS. Turn off only where nobody else is.",
    ),
    cfg.StrOpt(
        "ca_file",
        default="/etc/acstor/tls/ca.pem",
        help="Certificates (PEM) of the authorities that sign the hosts' certificates.",
    ),
    cfg.StrOpt(
        "cert_file",
        default="/etc/acstor/tls/host.pem",
        help="Certificate chain (PEM) of this host; names the host or its advertised address.",
    ),
    cfg.StrOpt(
        "key_file",
        default="/etc/acstor/tls/host.key",
        help="Private key (PEM) of cert_file.",
    ),
    cfg.StrOpt(
        "crl_file",
        help=(
            "Revocation lists (PEM) of the authorities, one or several: whose certificate is on "
            "one is refused, and cut off when it is connected. The file is read again when it "
            "changes; one that cannot be used leaves the last good one in force, one that is "
            "overdue stays in force. Unset: no certificate is ever revoked."
        ),
    ),
    cfg.BoolOpt(
        "members_only",
        default=True,
        help=(
            "Whether only hosts of the ring are served, by the name or address in their "
            "certificates, and those that left it within the last hour. Before this host has a "
            "ring, every certificate of the authorities will do. Needs tls_enabled."
        ),
    ),
    cfg.FloatOpt(
        "connect_timeout",
        default=1.0,
        min=0.01,
        max=60.0,
        help="Seconds that connecting to a peer, with its TLS handshake, may take.",
    ),
    cfg.FloatOpt(
        "idle_timeout",
        default=300.0,
        min=1.0,
        max=86400.0,
        help="Seconds after which an idle connection is closed.",
    ),
    cfg.IntOpt(
        "connections_max",
        default=4096,
        min=1,
        max=65536,
        help="Connections of peers at a time. Beyond, the one that has been idle for longest is "
        "told to go; a peer is refused only where all are busy. Connections that have not said "
        "HELLO do not count.",
    ),
    cfg.IntOpt(
        "requests_inflight_max",
        default=1024,
        min=1,
        max=65536,
        help="Requests of all peers that are served at a time; more are refused at once.",
    ),
    cfg.Opt(
        "bytes_inflight_max",
        type=types.ByteSize(types.MIB, 64 * types.GIB),
        default="128MiB",
        help="Bytes of answers under way to all peers; more are refused at once.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[peer]``."""
    conf.register_opts(OPTIONS, group=GROUP)
