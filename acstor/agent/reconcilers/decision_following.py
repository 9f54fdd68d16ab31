"""Following the decision in force: what the publisher and the data plane of this host go by."""

import logging
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.cluster.ring.decision import Decision, DecisionReference
from acstor.control.client import AdminClient

LOG = logging.getLogger(__name__)

_STATUS_FIELD = "placement_threshold"


class DecisionFollower:
    """Reads the decision at each pass and gives its threshold to the data plane."""

    def __init__(self, reference: DecisionReference, data_plane: AdminClient) -> None:
        self._reference = reference
        self._data_plane = data_plane
        self._has_told = False
        self.is_known = False
        """True if :attr:`decision` is to be gone by: it was read, or found not to be there."""

    @property
    def decision(self) -> Decision | None:
        """The decision in force, as it was read last; None: there was none."""
        return self._reference.known

    def reconcile(self, status: Mapping[str, Any] | None) -> None:
        """Read the decision, and bring the data plane to its threshold where it has another.

        :param status: of the data plane; None: it does not answer.
        :raises AcstorError: when the origin, the decision or the data plane is not as it should
            be; what was known before stays known.
        """
        try:
            decision = self._reference.current()
        except (exception.CorruptError, exception.UnsupportedError):
            self.is_known = self._reference.known is not None
            raise
        self.is_known = True
        if status is None:
            return
        if _STATUS_FIELD not in status:
            self._tell_once(decision)
            return
        wanted = decision.threshold if decision else None
        if status[_STATUS_FIELD] != wanted:
            self._data_plane.call("placement.threshold", hops=wanted)
            LOG.info("the data plane skips hosts at %s hops", wanted or "as many as configured")

    def _tell_once(self, decision: Decision | None) -> None:
        if decision is not None and decision.threshold is not None and not self._has_told:
            self._has_told = True
            LOG.warning(
                "the data plane is older than the agent and goes on with [readpath] "
                "distance_threshold; upgrade it: acstor host restart-dataplane"
            )
