"""Options of how Cinder is found in the service catalogue (keystoneauth's; see ``keystone.py``)."""

from oslo_config import cfg

from acstor.conf.nova import adapter_options

GROUP = "cinder"
SERVICE_TYPE = "block-storage"


def service_options() -> list[cfg.Opt]:
    """Return the options of the adapter."""
    return adapter_options(SERVICE_TYPE)
