"""``acstor-policy``: decides weights and thresholds. It may restart at any time."""

import logging
from collections.abc import Sequence

from oslo_config import cfg

from acstor.cmd import daemon

LOG = logging.getLogger("acstor.policy")

ORIGIN_DEADLINE = 5.0
"""Seconds for which one call of the origin is repeated; the next collection is the longer retry."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the policy service until a signal; return the exit status."""
    return daemon.run("acstor-policy", LOG, _run, arguments)


def _run(conf: cfg.ConfigOpts) -> int:
    from acstor.http_server import metrics as metrics_endpoint
    from acstor.origin import configured
    from acstor.origin.opening import open_origin
    from acstor.policy.feeds.base import build_feeds
    from acstor.policy.load_samples import LoadSamples
    from acstor.policy.metrics import PolicyMetrics
    from acstor.policy.service import PolicyService
    from acstor.rpc import transport
    from acstor.rpc.announcements import Announcements

    metrics = PolicyMetrics()
    load_samples = LoadSamples(conf.policy.interval)
    messages = Announcements(conf) if transport.is_configured(conf) else None
    service = PolicyService(
        conf,
        open_origin=lambda: open_origin(
            configured.home_url(conf), min(ORIGIN_DEADLINE, conf.origin.timeout)
        ),
        load_samples=load_samples,
        feeds=build_feeds(conf, load_samples),
        metrics=metrics,
        announce=lambda concerns_all: (
            messages.announce_decision(concerns_all=concerns_all) if messages is not None else None
        ),
    )
    endpoint = metrics_endpoint.of_options(
        conf, "policy", text=metrics.text, is_healthy=service.is_healthy
    )
    if messages is not None:
        messages.start()
    try:
        daemon.serve(service, endpoint, LOG)
    finally:
        if messages is not None:
            messages.stop(5.0)
    return 0
