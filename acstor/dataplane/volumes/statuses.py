"""Status of the volumes of this host, as it is answered."""

from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.sockets import VolumeSockets
from acstor.dataplane.volumes.table import VolumeTable


class VolumeStatuses:
    """Answers about volumes, composed of what the runtime says and what is known here."""

    def __init__(
        self, table: VolumeTable, observer: VolumeObserver, sockets: VolumeSockets
    ) -> None:
        self._table = table
        self._observer = observer
        self._sockets = sockets

    def list_volumes(self) -> list[dict[str, object]]:
        """Return the status of every volume, ordered by id."""
        volumes = sorted(self._table.all(), key=lambda local: local.volume)
        return [
            self._status(local) for local in volumes if local.state is not LocalVolumeState.CLOSED
        ]

    def status(self, volume: str) -> dict[str, object]:
        """Return the status of a volume.

        :raises NotFoundError: when it is not open here.
        """
        return self._status(self._table.known(volume))

    def description(self, local: LocalVolume) -> dict[str, object]:
        """Return where a volume is served, and the token that opens it there."""
        status = self._status(local)
        names = ("volume", "role", "state", "socket", "size_bytes", "epoch")
        # Only whoever opens a volume is told the token.
        export = self._sockets.token(local.volume)
        return {"export": export, **{name: status[name] for name in names}}

    def _status(self, local: LocalVolume) -> dict[str, object]:
        status = dict(self._observer.follow(local))
        for internal in ("is_fold_due", "is_manifest_damaged", "manifest"):
            status.pop(internal, None)
        status.update(
            volume=local.volume,
            role=str(local.role),
            state=str(local.state),
            socket=self._sockets.path(local.volume),
            error=local.error or status.get("error"),
        )
        return status
