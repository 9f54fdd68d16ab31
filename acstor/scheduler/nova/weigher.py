"""Nova weigher: hosts that hold what boots of the image read, and whose network is idle.

The page is ``doc/source/admin/scheduling.rst``. Let ``c`` be the coverage of the image's boot
working set on a host and ``t`` its extra traffic as a share of its link, both 0 to 1. The weight of
a host is::

    m_c * (c - mean(c)) - m_t * (t - mean(t))

with the multipliers of the host. The means are over the hosts of this decision whose figures are
known; an unknown figure adds 0. So a host of which nothing is known stands where an average host
stands: it is neither punished nor preferred. Nova would stretch the weights to 0..1, which makes
1.0 of a difference of a hundredth; stating the range as 0 to 1 keeps them as they are.
"""

import logging
import math
from collections.abc import Sequence
from typing import Any

import nova.conf
from nova.scheduler import utils as scheduler_utils
from nova.scheduler import weights

from acstor.scheduler.host_table import HostTable
from acstor.scheduler.nova import request
from acstor.scheduler.nova.hosts import Hosts, shared
from acstor.scheduler.nova.lookup import state_of
from acstor.telemetry.host_states import HostState

LOG = logging.getLogger(__name__)

CONF = nova.conf.CONF

COVERAGE_MULTIPLIER = "boot_coverage_weight_multiplier"
TRAFFIC_MULTIPLIER = "extra_traffic_weight_multiplier"


class BootCoverageWeigher(weights.BaseHostWeigher):  # type: ignore[misc] # Nova has no types
    """Prefers warm hosts on idle links."""

    # Read by Nova as the range of what it normalises: with 0 and 1 it changes nothing.
    minval = 0.0
    maxval = 1.0

    def __init__(self, hosts: Hosts | None = None) -> None:
        """Use the host states of this process unless others are given."""
        self._hosts = hosts if hosts is not None else shared()

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Return the weights of all hosts; 0 for all when anything is wrong."""
        try:
            image = request.image_id(weight_properties)
            if image is None:
                return [0.0] * len(weighed_obj_list)
            host_states = [weighed.obj for weighed in weighed_obj_list]
            return self._weigh(host_states, image, self._hosts.table())
        except Exception:
            LOG.exception("hosts are not weighed by their boot coverage")
            return [0.0] * len(weighed_obj_list)

    def _weigh_object(self, host_state: Any, weight_properties: Any) -> float:
        return self.weigh_objects([_Alone(host_state)], weight_properties)[0]

    def _weigh(self, host_states: Sequence[Any], image: str, table: HostTable) -> list[float]:
        now = table.clock()
        known = [state_of(table, host_state, now) for host_state in host_states]
        coverages = _centred([_coverage(state, image) for state in known])
        traffics = _centred([_traffic(state) for state in known])
        multipliers = _multipliers(host_states)
        return [
            of_coverage * coverage - of_traffic * traffic
            for (of_coverage, of_traffic), coverage, traffic in zip(
                multipliers, coverages, traffics, strict=True
            )
        ]


class _Alone:
    """A host that is weighed by itself."""

    def __init__(self, host_state: Any) -> None:
        self.obj = host_state


def _coverage(state: HostState | None, image: str) -> float | None:
    if state is None:
        return None
    if state.is_draining or not state.is_up:
        return 0.0  # what it holds is of no use to a guest that starts there now
    return state.coverage.get(image)


def _traffic(state: HostState | None) -> float | None:
    """Return the share of the link, in its busier direction, that other traffic takes."""
    if state is None or not state.link_bytes_per_s:
        return None
    busiest = max(
        (rate for rate in (state.extra_in, state.extra_out) if rate is not None), default=None
    )
    return None if busiest is None else min(1.0, busiest / state.link_bytes_per_s)


def _centred(values: Sequence[float | None]) -> list[float]:
    """Return each value less the mean of those that are known; 0 for those that are not."""
    known = [value for value in values if value is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    return [0.0 if value is None else value - mean for value in values]


def _multipliers(host_states: Sequence[Any]) -> list[tuple[float, float]]:
    """Return the multipliers of coverage and of traffic for each host.

    They depend on the host's aggregates only; those are few, and hosts share the objects.
    """
    known: dict[tuple[int, ...], tuple[float, float]] = {}
    found = []
    for host_state in host_states:
        aggregates = tuple(map(id, host_state.aggregates))
        if aggregates not in known:
            known[aggregates] = (
                _multiplier(host_state, COVERAGE_MULTIPLIER),
                _multiplier(host_state, TRAFFIC_MULTIPLIER),
            )
        found.append(known[aggregates])
    return found


def _multiplier(host_state: Any, name: str) -> float:
    configured = float(CONF.acstor[name])
    value = float(scheduler_utils.get_weight_multiplier(host_state, name, configured))
    return value if math.isfinite(value) else configured
