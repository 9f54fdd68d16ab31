"""Options of a Prometheus endpoint: one declaration for every process that has one."""

from oslo_config import cfg


def options(port: int) -> list[cfg.Opt]:
    """Return the options of the endpoint of one process, for its own group.

    :param port: TCP port by default.
    """
    return [
        cfg.HostAddressOpt(
            "metrics_address",
            default="127.0.0.1",
            help=(
                "Address of the Prometheus endpoint (/metrics, /healthz): for a Prometheus on "
                "another machine that of this host on the management network. Whoever reaches it "
                "can read it, unless metrics_ca_file is set."
            ),
        ),
        cfg.PortOpt(
            "metrics_port",
            default=port,
            help="TCP port of the Prometheus endpoint. 0: any free one.",
        ),
        cfg.StrOpt(
            "metrics_cert_file",
            help="Certificate chain (PEM) of the Prometheus endpoint. Unset: in the clear.",
        ),
        cfg.StrOpt(
            "metrics_key_file",
            help="Private key (PEM) of metrics_cert_file. Unset: it is in that file.",
        ),
        cfg.StrOpt(
            "metrics_ca_file",
            help=(
                "Certificates (PEM) of the authorities of those who may read the metrics: "
                "Prometheus, and ACStor's own commands, which show metrics_cert_file. Needs "
                "metrics_cert_file. Unset: everybody may."
            ),
        ),
    ]
