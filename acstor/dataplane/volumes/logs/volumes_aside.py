"""Logs that were put aside, as an operator has them: listed, removed, restored and exported.

Nothing of this is on the socket of Nova and Cinder.
"""

import dataclasses
import logging
from collections.abc import Callable

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.listeners import VolumeListeners
from acstor.dataplane.volumes.logs import aside_reader
from acstor.dataplane.volumes.logs.aside import LogAside
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable
from acstor.native import DataPlane

LOG = logging.getLogger(__name__)

_S = LocalVolumeState


class VolumesAside:
    """Volumes whose log was put aside.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        owner: VolumeOwner,
        listeners: VolumeListeners,
        forgetting: VolumeForgetting,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._table = table
        self._files = files
        self._owner = owner
        self._listeners = listeners
        self._forgetting = forgetting
        self._runtime = runtime

    def list_aside(self) -> list[dict[str, object]]:
        """Return the logs that were put aside, ordered by name."""
        return [dataclasses.asdict(one) for one in self._files.aside.list()]

    def remove_aside(self, name: str) -> dict[str, object]:
        """Remove a log that was put aside, for good; return what it was.

        :raises NotFoundError: when there is none of that name.
        """
        removed = self._files.aside.remove(name)
        LOG.warning("%s, put aside because %s, is removed", removed.path, removed.why or "unknown")
        return dataclasses.asdict(removed)

    def restore_aside(self, name: str) -> None:
        """Open a volume again from a log that was put aside.

        :raises ConflictError: when the volume is open here, or was owned since: by now it is
            another disk, of which that log is no part.
        :raises CorruptError: when what was kept of it cannot be read.
        """
        aside = self._files.aside.get(name)
        with self._table.changing(aside.volume) as local:
            if local.state is not _S.CLOSED:
                raise exception.ConflictError(
                    f"volume {aside.volume} is {local.state} on {self._owner.host}",
                    hint="detach it first",
                )
            try:
                self._check_is_last(aside)
                self._listeners.attach(aside.volume)
                self._files.restore_aside(aside)
            except Exception:
                self._forgetting.discard(local)
                raise
            local.move(LocalVolumeEvent.OPEN)
            self._listeners.bound(local)
        LOG.warning("volume %s is opened again from %s", aside.volume, aside.path)

    def export_aside(self, name: str, path: str) -> dict[str, object]:
        """Write the disk as a log that was put aside has it to a new raw file.

        :raises ConflictError: while the volume is open here.
        :raises CorruptError: when what was kept of it cannot be read.
        :raises InvalidError: when the file is there already or cannot be written.
        """
        aside = self._files.aside.get(name)
        kept = self._files.find_aside(aside)
        with self._table.changing(aside.volume) as local:
            if local.state is not _S.CLOSED:
                raise exception.ConflictError(
                    f"volume {aside.volume} is {local.state} on {self._owner.host}: detach it first"
                )
            try:
                size_bytes = aside_reader.copy(self._runtime(), aside, kept, path)
            except OSError as error:
                raise exception.InvalidError(f"{path}: {error.strerror}") from error
            finally:
                self._forgetting.discard(local)
        return {"path": path, "size_bytes": size_bytes}

    def _check_is_last(self, aside: LogAside) -> None:
        kept = self._files.find_aside(aside)
        if self._owner.check_owner(aside.volume, kept.epoch).record is None:
            raise exception.ConflictError(
                f"volume {aside.volume} is not owned by {self._owner.host} in epoch {kept.epoch} "
                f"any more: {aside.name} is no part of what it is now",
            )
