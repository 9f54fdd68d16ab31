"""All options of ACStor, for the programs and for oslo-config-generator."""

from types import ModuleType

from oslo_config import cfg

from acstor.conf import (
    agent,
    api,
    captures,
    ceilometer,
    coordination,
    database,
    dataplane,
    default,
    gc,
    glance,
    image_links,
    local_files,
    origin,
    peer,
    policy,
    power,
    preload,
    readpath,
    registrar,
    registration,
    repository,
    rpc,
    store,
    volumes,
    worker,
)

MODULES: tuple[ModuleType, ...] = (
    default,
    origin,
    power,
    store,
    dataplane,
    readpath,
    volumes,
    peer,
    coordination,
    rpc,
    agent,
    image_links,
    local_files,
    preload,
    captures,
    policy,
    ceilometer,
    repository,
    registration,
    registrar,
    glance,
    gc,
    database,
    worker,
    api,
)


def register_all(conf: cfg.ConfigOpts) -> None:
    """Register the options of every group."""
    for module in MODULES:
        module.register_opts(conf)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return (group, options) pairs in the order of the sample file."""
    return [(module.GROUP, list(module.OPTIONS)) for module in MODULES]


def set_defaults() -> None:
    """Change no default of any library (entry point of oslo-config-generator)."""
