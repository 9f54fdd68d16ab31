"""Nova filter: keeps hosts whose data plane is down or draining from instances that need it.

The page is ``doc/source/admin/scheduling.rst``.
"""

import logging
from collections.abc import Iterable
from typing import Any

import nova.conf
from nova.scheduler import filters
from nova.scheduler import utils as scheduler_utils

from acstor.scheduler.host_table import HostTable
from acstor.scheduler.nova import request
from acstor.scheduler.nova.hosts import Hosts, shared
from acstor.scheduler.nova.lookup import state_of
from acstor.scheduler.nova.request import Need
from acstor.telemetry.host_states import HostState

LOG = logging.getLogger(__name__)

CONF = nova.conf.CONF


class DataPlaneFilter(filters.BaseHostFilter):  # type: ignore[misc] # Nova has no types
    """Passes the hosts whose data plane suits the instance.

    An instance that requires a data plane passes hosts that are known to serve. One that does not
    say passes every host but those known to be draining or without data plane, and passes those
    too where no other is left: Nova can always download. A scheduler that knows of no host at all
    passes every host.
    """

    RUN_ON_REBUILD = False  # the host is given then

    def __init__(self, hosts: Hosts | None = None) -> None:
        """Use the host states of this process unless others are given."""
        self._hosts = hosts if hosts is not None else shared()

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> list[Any]:
        """Return the hosts that pass; all of them when anything is wrong."""
        candidates = list(filter_obj_list)
        try:
            if scheduler_utils.request_is_rebuild(spec_obj):
                return candidates
            return self._filter(candidates, spec_obj, self._hosts.table())
        except Exception:
            LOG.exception("hosts are not filtered by their data plane")
            return candidates

    def host_passes(self, host_state: Any, filter_properties: Any) -> bool:
        """Return whether one host passes by itself."""
        return bool(self.filter_all([host_state], filter_properties))

    def _filter(self, candidates: list[Any], spec: Any, table: HostTable) -> list[Any]:
        need = request.need(spec, CONF.acstor.data_plane_policy)
        now = table.clock()
        if need is Need.IGNORE or not candidates:
            return candidates
        if table.is_blind(now):
            if need is Need.REQUIRE:
                LOG.warning("no host has told its state: hosts without data plane are not kept out")
            return candidates
        if need is Need.REQUIRE:
            return [host for host in candidates if _serves(state_of(table, host, now)) is True]
        image = request.image_id(spec)
        if image is None or not table.is_registered(image, now):
            return candidates
        kept = [host for host in candidates if _serves(state_of(table, host, now)) is not False]
        if not kept:
            LOG.info(
                "every host left is draining or has no data plane; instances of image %s go there "
                "all the same",
                image,
            )
            return candidates
        return kept


def _serves(state: HostState | None) -> bool | None:
    """Return whether a host's data plane takes new instances; None: not known."""
    return None if state is None else state.is_up and not state.is_draining
