"""Selection of a policy service's feeds, by the configuration."""

import logging

from oslo_config import cfg

from acstor.policy.feeds.ceilometer import assembly
from acstor.policy.load_samples import LoadSamples
from acstor.policy.service import Feed
from acstor.policy.state_listener import StateListener
from acstor.rpc import transport

LOG = logging.getLogger(__name__)


def build_feeds(conf: cfg.ConfigOpts, load_samples: LoadSamples) -> list[tuple[str, Feed]]:
    """Return the feeds, by name.

    :raises ConfigurationError: when one is not configured as it needs.
    """
    feeds: list[tuple[str, Feed]] = []
    if transport.is_configured(conf):
        listener = StateListener(
            load_samples, lambda: transport.open_transport(conf), f"{conf.host}-policy"
        )
        feeds.append(("message broker", listener))
    feeds += assembly.build(conf, load_samples)
    if not feeds:
        LOG.warning(
            "there is no feed: set [DEFAULT] transport_url, or [ceilometer] listen_address, "
            "or nothing is known of any host"
        )
    return feeds
