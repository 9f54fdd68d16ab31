"""TLS towards the hosts' Prometheus endpoints, as this host's own ``[agent]`` options have it."""

import ssl

from oslo_config import cfg

from acstor import exception


def client_context(conf: cfg.ConfigOpts) -> ssl.SSLContext | None:
    """Return how the agents' metrics are read; None: in the clear, as they are served.

    With ``metrics_ca_file`` an endpoint needs a certificate of that authority, whatever its name:
    agents are known by addresses, their certificates hold the names of their hosts.

    :raises ConfigurationError: when the files cannot be used.
    """
    options = conf.agent
    if not options.metrics_cert_file:
        return None
    try:
        context = ssl.create_default_context(cafile=options.metrics_ca_file)
        if options.metrics_ca_file:
            context.check_hostname = False
            context.load_cert_chain(options.metrics_cert_file, options.metrics_key_file)
    except OSError as error:
        raise exception.ConfigurationError(
            f"[agent] metrics_cert_file {options.metrics_cert_file}, metrics_key_file or "
            f"metrics_ca_file: {error}",
            hint="name PEM files that you may read, or call the command as root",
        ) from error
    return context
