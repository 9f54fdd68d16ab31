"""Giving up volumes that cannot be opened or closed: an operator's way out.

It is not on the socket of Nova and Cinder: no call of theirs gives anything up.
"""

import dataclasses
import logging

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.folds.exclusion import FoldExclusion
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_MAY_BE_GIVEN_UP = frozenset({_S.OPENING, _S.CLOSING, _S.FENCED})
_WHY = "an operator gave the volume up on this host"


class VolumeGivingUp:
    """Gives volumes up."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        exclusion: FoldExclusion,
        observer: VolumeObserver,
        serving: VolumeServing,
        forgetting: VolumeForgetting,
    ) -> None:
        self._table = table
        self._files = files
        self._exclusion = exclusion
        self._observer = observer
        self._serving = serving
        self._forgetting = forgetting

    def give_up(self, volume: str) -> dict[str, object]:
        """Close a volume that cannot be opened or pushed; what only its log has is put aside.

        :returns: ``aside``: the log, see :meth:`.VolumesAside.list_aside`; None where nothing was
            in it alone.
        :raises NotFoundError: when it is not open here.
        :raises InvalidError: while it is served.
        """
        local = self._table.known(volume)
        with self._exclusion.of(local), local.turn():
            self._observer.follow(local)
            if local.state not in _MAY_BE_GIVEN_UP:
                raise exception.InvalidError(
                    f"volume {volume} is {local.state} on {self._table.host}: nothing of it is to "
                    "be given up",
                    hint="detach it",
                )
            self._serving.drop(local)
            if local.state is _S.FENCED:
                local.move(LocalVolumeEvent.CLOSE)
            local.move(LocalVolumeEvent.GIVEN_UP)
            aside = self._files.remove(volume, _WHY)
            self._forgetting.discard(local)
        LOG.warning("volume %s: %s", volume, _WHY)
        return {"aside": aside and dataclasses.asdict(aside)}
