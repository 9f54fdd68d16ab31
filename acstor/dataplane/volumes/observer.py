"""The volumes as the runtime has them: asked for, and followed in what it notices itself."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.table import VolumeTable
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)

_S = LocalVolumeState


class Noticed(NamedTuple):
    """Volumes that the runtime noticed something of."""

    due: list[str]
    """Those whose log should be folded."""
    damaged: list[str]
    """Those whose manifest is damaged in its file."""


class VolumeObserver:
    """The volumes in the runtime; whoever only asks waits for no lock.

    :param runtime: returns the runtime.
    """

    def __init__(self, table: VolumeTable, runtime: Callable[[], DataPlane]) -> None:
        self._table = table
        self._runtime = runtime

    def observe(self) -> Noticed:
        """Follow what the runtime noticed; return what is to be done about it."""
        noticed = Noticed([], [])
        for local in self._table.all():
            status = self.follow(local)
            if status.get("is_fold_due") and local.state is _S.SERVING:
                noticed.due.append(local.volume)
            if status.get("is_manifest_damaged"):
                noticed.damaged.append(local.volume)
        return noticed

    def follow(self, local: LocalVolume) -> Mapping[str, Any]:
        """Follow what the runtime noticed of a volume; return its status there."""
        status = self.status(local)
        if local.observe(status.get("state")):
            local.error = str(status.get("error") or "another host owns it")
            LOG.error("volume %s is fenced: %s", local.volume, local.error)
        return status

    def status(self, local: LocalVolume) -> Mapping[str, Any]:
        """Return the status of a volume in the runtime; empty where it is not open there."""
        if not local.is_in_runtime:
            return {}
        try:
            with map_errors(f"volume {local.volume}"):
                return self._runtime().volume_status(local.volume)
        except exception.NotFoundError:
            return {}  # closed this moment

    def require(self, local: LocalVolume, *states: LocalVolumeState) -> None:
        """Make sure that a volume is in one of some states.

        :raises FencedError: when another host owns it.
        :raises UnavailableError: when it is in another state.
        """
        self.follow(local)
        if local.state not in states:
            kind = exception.FencedError if local.state is _S.FENCED else exception.UnavailableError
            raise kind(f"volume {local.volume} is {local.state} on {self._table.host}")
