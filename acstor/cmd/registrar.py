"""``acstor-registrar``: follows the images of Glance. It may restart at any time."""

import logging
import os
from collections.abc import Sequence

from oslo_config import cfg

from acstor.cmd import daemon

LOG = logging.getLogger("acstor.registrar")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the registrar until a signal; return the exit status."""
    return daemon.run("acstor-registrar", LOG, _run, arguments)


def _run(conf: cfg.ConfigOpts) -> int:
    from acstor import identity
    from acstor.http_server import metrics as metrics_endpoint
    from acstor.origin import configured
    from acstor.origin.opening import open_origin
    from acstor.preload.image_caching import assembly as image_caching
    from acstor.registrar.image_service.opening import open_image_service
    from acstor.registrar.metrics import RegistrarMetrics
    from acstor.registrar.registration.child_registration import InChild
    from acstor.registrar.service import RegistrarService
    from acstor.repository.images.configured_records import signed_records
    from acstor.repository.source import confinement

    # It warns at each attempt that Keystone is away; the registrar reports that, once.
    logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)
    if conf.registrar.niceness:
        os.nice(conf.registrar.niceness)
    metrics = RegistrarMetrics()
    session = identity.open_session(conf)
    service = RegistrarService(
        conf,
        open_service=lambda sleep: open_image_service(conf, session, sleep),
        open_origin=lambda: open_origin(configured.origin_url(conf), conf.origin.timeout),
        metrics=metrics,
        file_registrar=InChild(
            configured.origin_url(conf),
            conf.origin.timeout,
            conf.registrar.job_memory,
            writer=signed_records(conf),
        ),
    )
    endpoint = metrics_endpoint.of_options(
        conf, "registrar", text=metrics.text, is_healthy=service.is_healthy
    )
    confinement.warn_of_missing()
    caching = image_caching.build(
        conf, lambda outcome: metrics.cached_images.labels(outcome.value).inc()
    )
    if caching is not None:
        caching.start()
    try:
        daemon.serve(service, endpoint, LOG)
    finally:
        if caching is not None:
            caching.stop()
    return 0
