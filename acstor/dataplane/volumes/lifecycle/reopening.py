"""Opening a volume again of which a former opening has left something here."""

from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.mending import VolumeMending
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable


class VolumeReopening:
    """Goes on with volumes whose closing failed, or that are fenced."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        mending: VolumeMending,
        serving: VolumeServing,
        forgetting: VolumeForgetting,
    ) -> None:
        self._table = table
        self._files = files
        self._mending = mending
        self._serving = serving
        self._forgetting = forgetting

    def reopen(self, local: LocalVolume) -> None:
        """Serve a volume that is closing, or have it be closed, to be opened anew.

        Whoever calls holds its lock, and finds it in the table afterwards, too.

        :param local: closing or fenced.
        :raises AcstorError: when it may have been given back and the origin does not answer.
        """
        if local.state is LocalVolumeState.FENCED:
            self._forgetting.forget_fenced(local)
            self._table.add(local)
            return
        if local.released is not None:
            check = self._mending.check_owner(local.volume)
            if check is None or check.record is None:
                # It was given back: what is here may be old by now.
                self._forgetting.forget(local, "it was given back")
                self._table.add(local)
                return
            kept = self._mending.mended(self._files.require(local.volume), check.record)
            self._mending.reaffirm(kept)
            local.released = None
            self._serving.start(local, kept)
        elif not local.is_in_runtime:
            self._serving.start(local, self._files.require(local.volume))
        self._serving.serve(local, LocalVolumeEvent.SERVED)
