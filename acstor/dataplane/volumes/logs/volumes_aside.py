"""What operators do with volumes that cannot be opened or closed, and with their local logs.

Nothing of this is on the socket of Nova and Cinder: no call of theirs gives anything up.
"""

import dataclasses
import logging

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.logs import aside_reader
from acstor.dataplane.volumes.logs.aside import LogAside
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.volumes_closed import VolumesClosed

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_MAY_BE_GIVEN_UP = frozenset({_S.OPENING, _S.CLOSING, _S.FENCED})
_WHY = "an operator gave the volume up on this host"


class VolumesAside(VolumesClosed):
    """Giving volumes up, and the logs that were put aside."""

    def give_up(self, volume: str) -> dict[str, object]:
        """Close a volume that cannot be opened or pushed; what only its log has is put aside.

        :returns: ``aside``: the log, see :meth:`list_aside`; None where nothing was in it alone.
        :raises NotFoundError: when it is not open here.
        :raises InvalidError: while it is served.
        """
        local = self._known(volume)
        with self._fold_turn(local), self._turn(local):
            self._observe(local)
            if local.state not in _MAY_BE_GIVEN_UP:
                raise exception.InvalidError(
                    f"volume {volume} is {local.state} on {self._owner.host}: nothing of it is to "
                    "be given up",
                    hint="detach it",
                )
            self._drop_from_runtime(local)
            if local.state is _S.FENCED:
                local.move(LocalVolumeEvent.CLOSE)
            local.move(LocalVolumeEvent.GIVEN_UP)
            aside = self._files.remove(volume, _WHY)
            self._discard(local)
        LOG.warning("volume %s: %s", volume, _WHY)
        return {"aside": aside and dataclasses.asdict(aside)}

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
        with self._changing(aside.volume) as local:
            if local.state is not _S.CLOSED:
                raise exception.ConflictError(
                    f"volume {aside.volume} is {local.state} on {self._owner.host}",
                    hint="detach it first",
                )
            try:
                self._check_is_last(aside)
                self._sockets.attach(aside.volume)
                self._files.restore_aside(aside)
            except Exception:
                self._discard(local)
                raise
            local.move(LocalVolumeEvent.OPEN)
            self._listener(local)
        LOG.warning("volume %s is opened again from %s", aside.volume, aside.path)

    def export_aside(self, name: str, path: str) -> dict[str, object]:
        """Write the disk as a log that was put aside has it to a new raw file.

        :raises ConflictError: while the volume is open here.
        :raises CorruptError: when what was kept of it cannot be read.
        :raises InvalidError: when the file is there already or cannot be written.
        """
        aside = self._files.aside.get(name)
        kept = self._files.find_aside(aside)
        with self._changing(aside.volume) as local:
            if local.state is not _S.CLOSED:
                raise exception.ConflictError(
                    f"volume {aside.volume} is {local.state} on {self._owner.host}: detach it first"
                )
            try:
                size_bytes = aside_reader.copy(self._runtime(), aside, kept, path)
            except OSError as error:
                raise exception.InvalidError(f"{path}: {error.strerror}") from error
            finally:
                self._discard(local)
        return {"path": path, "size_bytes": size_bytes}

    def _check_is_last(self, aside: LogAside) -> None:
        kept = self._files.find_aside(aside)
        if self._owner.look(aside.volume, kept.epoch).record is None:
            raise exception.ConflictError(
                f"volume {aside.volume} is not owned by {self._owner.host} in epoch {kept.epoch} "
                f"any more: {aside.name} is no part of what it is now",
            )
