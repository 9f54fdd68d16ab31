"""Assembly of the reconciler of restores in place, by the configuration of captures."""

import os

from oslo_config import cfg

from acstor import exception
from acstor.agent.captures.orders import OriginOrder
from acstor.agent.hypervisor.libvirt_driver import LibvirtHypervisor
from acstor.agent.restores.orders import RestoreOrder
from acstor.agent.restores.reconciler import ChildRestores, RestoreReconciler
from acstor.agent.restores.table import RestoreTable
from acstor.origin import configured
from acstor.versions.host_restore.request import RestoreRequest

FOLDER = "restores"
"""Folder of the records, in that of captures."""


def build(conf: cfg.ConfigOpts) -> RestoreReconciler | None:
    """Return the reconciler of a host, None where captures are off: a disk must be kept first."""
    if not conf.captures.enabled:
        return None
    options = conf.captures

    def order_of(request: RestoreRequest) -> RestoreOrder:
        return RestoreOrder(
            OriginOrder(configured.origin_url(conf), conf.origin.timeout, conf.host),
            request,
            options.read_rate // options.jobs,
            options.write_rate // options.jobs,
            options.libvirt_uri,
            options.monitor,
            options.nice,
        )

    def is_gone(server: str) -> bool:
        try:
            hypervisor = LibvirtHypervisor(options.libvirt_uri, uses_monitor=options.monitor)
        except exception.UnsupportedError:
            return False
        try:
            return hypervisor.find(server) is None
        finally:
            hypervisor.close()

    table = RestoreTable(os.path.join(options.path, FOLDER), conf.host)
    return RestoreReconciler(table, ChildRestores(), order_of, is_gone, options.jobs)
