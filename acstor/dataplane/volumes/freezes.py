"""Freezes: writes that wait while a snapshot of several volumes is taken."""

from collections.abc import Callable

from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable
from acstor.native import DataPlane, map_errors

_S = LocalVolumeState
_NOBODY = ""
"""Holder of a freeze whose caller does not name itself."""


class VolumeFreezes:
    """The freezes of volumes, each with its holders.

    :param runtime: returns the runtime.
    """

    def __init__(
        self, table: VolumeTable, observer: VolumeObserver, runtime: Callable[[], DataPlane]
    ) -> None:
        self._table = table
        self._observer = observer
        self._runtime = runtime

    def freeze(self, volume: str, timeout_s: float, holder: str | None) -> None:
        """Hold writes until :meth:`thaw`, or for ``timeout_s`` seconds.

        :param holder: on whose behalf; writes go on when none holds them any more.
        """
        local = self._table.in_runtime(volume)
        with local.lock, map_errors(f"freezing volume {volume}"):
            self._observer.require(local, _S.SERVING, _S.FROZEN)
            if local.state is _S.SERVING:
                local.freezes.clear()  # the process before, or an owner before, may have had them
            self._runtime().volume_freeze(volume, local.hold(holder or _NOBODY, timeout_s))
            local.move(LocalVolumeEvent.FREEZE)

    def thaw(self, volume: str, holder: str | None) -> dict[str, object]:
        """Let writes go on, unless others hold them; say whether they were held until now.

        :param holder: as it was given to :meth:`freeze`.
        """
        local = self._table.in_runtime(volume)
        with local.lock, map_errors(f"thawing volume {volume}"):
            self._observer.require(local, _S.SERVING, _S.FROZEN)
            was_held, remaining_s = local.let_go(holder or _NOBODY)
            if local.state is _S.FROZEN and remaining_s > 0:
                self._runtime().volume_freeze(volume, remaining_s)
            else:
                self._runtime().volume_thaw(volume)
                local.move(LocalVolumeEvent.THAW)
        return {"done": True, "was_held": was_held}
