"""Options of keystoneauth in ACStor's files: what the sample shows and what is not unknown.

Kept apart from :mod:`acstor.conf.opts` because listing them loads keystoneauth.
"""

from oslo_config import cfg

from acstor.conf import cinder, glance, keystone, nova

_MODULES = (keystone, glance, nova, cinder)

GROUPS = tuple(module.GROUP for module in _MODULES)
"""Groups that hold options of keystoneauth."""


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return (group, options) pairs (entry point of oslo-config-generator)."""
    return [(module.GROUP, module.service_options()) for module in _MODULES]
