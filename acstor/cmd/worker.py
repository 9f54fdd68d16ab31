"""``acstor-worker``: long work at versions, and their schedules. It may restart at any time."""

import logging
from collections.abc import Sequence

from oslo_config import cfg

from acstor.cmd import daemon

LOG = logging.getLogger("acstor.worker")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker until a signal; return the exit status."""
    return daemon.run("acstor-worker", LOG, _run, arguments)


def _run(conf: cfg.ConfigOpts) -> int:
    from acstor.http_server import metrics as metrics_endpoint
    from acstor.versions.worker import assembly
    from acstor.versions.worker.metrics import WorkerMetrics

    # It warns at each attempt that Keystone is away; the task says that.
    logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)
    metrics = WorkerMetrics()
    with assembly.open_service(conf, metrics) as service:
        endpoint = metrics_endpoint.of_options(
            conf, "worker", text=metrics.text, is_healthy=service.is_healthy
        )
        daemon.serve(service, endpoint, LOG)
    return 0
