"""Options of how Nova is found in the service catalogue (keystoneauth's; see ``keystone.py``)."""

from oslo_config import cfg

GROUP = "nova"
SERVICE_TYPE = "compute"


def service_options() -> list[cfg.Opt]:
    """Return the options of the adapter."""
    return adapter_options(SERVICE_TYPE)


def adapter_options(service_type: str) -> list[cfg.Opt]:
    """Return keystoneauth's options of an adapter for a service of that type."""
    from keystoneauth1 import loading

    options: list[cfg.Opt] = loading.get_adapter_conf_options(include_deprecated=False)
    cfg.set_defaults(options, service_type=service_type, valid_interfaces=["internal", "public"])
    return options
