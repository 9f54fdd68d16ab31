"""The volumes of this host: which there are, and what is to be seen of them."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.fold_turns import FoldTurns
from acstor.dataplane.volumes.kept_volume import KeptStandby, KeptVolume
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.ownership.doorbells import HostDoorbells
from acstor.dataplane.volumes.ownership.heads import HeadQuestions
from acstor.dataplane.volumes.ownership.migrations import MigrationRequests
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.sockets import VolumeSockets
from acstor.dataplane.volumes.take_overs import TakeOvers
from acstor.native import DataPlane, map_errors
from acstor.supervision.supervisor import Supervisor

LOG = logging.getLogger(__name__)

_S = LocalVolumeState


class VolumeTable:
    """The volumes that are open on this host, and what is to be seen of them.

    :param host: its name in the records.
    :param access: to the records.
    :param is_enabled: whether volumes may be opened.
    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        host: str,
        access: OriginAccess,
        is_enabled: bool,
        runtime: Callable[[], DataPlane],
        files: VolumeFiles,
        place: LogDirectory,
        sockets: VolumeSockets,
        supervisor: Supervisor,
    ) -> None:
        self._log_origin = access.log_origin
        self._owner = VolumeOwner(host, access)
        self._doorbells = HostDoorbells(host, access)
        self._migrations = MigrationRequests(host, access, self._doorbells)
        self._questions = HeadQuestions(access, self._owner, self._doorbells)
        self._is_enabled = is_enabled
        self._runtime = runtime
        self._files = files
        self._place = place
        self._place_error: exception.AcstorError | None = None
        """Why nothing was looked for in the directory of the logs when the process began."""
        self._sockets = sockets
        self._supervisor = supervisor
        self._volumes: dict[str, LocalVolume] = {}
        self._lock = threading.Lock()  # of _volumes
        self._fold_turns = FoldTurns(self._set_fold_unwanted)
        self.take_overs = TakeOvers()
        """Of owners that had not given a volume back, by this process."""

    def _kept_before(self) -> dict[str, KeptVolume | KeptStandby | exception.CorruptError]:
        """Return what the process before kept of its volumes; nothing where it cannot be known."""
        try:
            self._place.check()
        except exception.AcstorError as error:
            self._place_error = error
            LOG.error("no volume is opened on this host: %s", error)
            return {}
        found = self._files.kept()
        if found:
            try:
                # A release before gave the directory no identity.
                self._place.claim()
            except exception.UnavailableError as error:
                # The next open says so; volumes that are open are served all the same.
                LOG.warning("an unmounted directory of logs would not be noticed: %s", error)
        return found

    def metrics_text(self) -> str:
        """Return the metrics of what the runtime does not know of."""
        from acstor.dataplane.volumes import metrics  # not needed before anybody asks

        return metrics.text(self.take_overs, self._files.aside.list())

    # Looking

    def list_volumes(self) -> list[dict[str, object]]:
        """Return the status of every volume, ordered by id."""
        with self._lock:
            volumes = sorted(self._volumes.values(), key=lambda local: local.volume)
        return [self._status(local) for local in volumes if local.state is not _S.CLOSED]

    def status(self, volume: str) -> dict[str, object]:
        """Return the status of a volume.

        :raises NotFoundError: when it is not open here.
        """
        return self._status(self._known(volume))

    def unsettled(self) -> tuple[list[str], list[str]]:
        """Return the volumes to resume, and those that were resumed without knowing the owner."""
        with self._lock:
            volumes = list(self._volumes.values())
        to_resume = [local.volume for local in volumes if local.state is _S.OPENING]
        return to_resume, [local.volume for local in volumes if local.is_unchecked]

    def observe(self) -> list[str]:
        """Follow what the runtime noticed; return the volumes whose log should be folded."""
        with self._lock:
            volumes = list(self._volumes.values())
        due = []
        for local in volumes:
            if self._observe(local).get("is_fold_due") and local.state is _S.SERVING:
                due.append(local.volume)
        return due

    def _observe(self, local: LocalVolume) -> Mapping[str, Any]:
        status = self._status_of_runtime(local)
        if local.observe(status.get("state")):
            local.error = str(status.get("error") or "another host owns it")
            LOG.error("volume %s is fenced: %s", local.volume, local.error)
        return status

    def _status_of_runtime(self, local: LocalVolume) -> Mapping[str, Any]:
        if not local.is_in_runtime:
            return {}
        try:
            with map_errors(f"volume {local.volume}"):
                return self._runtime().volume_status(local.volume)
        except exception.NotFoundError:
            return {}  # closed this moment

    def _status(self, local: LocalVolume) -> dict[str, object]:
        status = dict(self._observe(local))
        for internal in ("is_fold_due", "manifest"):
            status.pop(internal, None)
        status.update(
            volume=local.volume,
            role=str(local.role),
            state=str(local.state),
            socket=self._sockets.path(local.volume),
            error=local.error or status.get("error"),
        )
        return status

    def _description(self, local: LocalVolume) -> dict[str, object]:
        status = self._status(local)
        names = ("volume", "role", "state", "socket", "size_bytes", "epoch")
        # Only whoever opens a volume is told the token.
        export = self._sockets.token(local.volume)
        return {"export": export, **{name: status[name] for name in names}}

    def _local(self, volume: str) -> LocalVolume:
        with self._lock:
            return self._volumes.setdefault(volume, LocalVolume(volume))

    def _register(self, local: LocalVolume) -> None:
        with self._lock:
            self._volumes[local.volume] = local

    @contextlib.contextmanager
    def _changing(self, volume: str) -> Iterator[LocalVolume]:
        """Lock a volume, known or not, that is the present one of that id."""
        while True:
            local = self._local(volume)
            with local.lock:
                if self._volumes.get(volume) is local:
                    yield local
                    return

    def _known(self, volume: str) -> LocalVolume:
        local = self._volumes.get(volume)
        if local is None or local.state is _S.CLOSED:
            raise exception.NotFoundError(
                f"volume {volume} is not open on {self._owner.host}",
                hint="'acstor volume show' tells where it is open",
            )
        return local

    def _in_runtime(self, volume: str) -> LocalVolume:
        local = self._known(volume)
        if not local.is_in_runtime:
            raise exception.UnavailableError(
                f"volume {volume} is being opened: {local.error or 'try again in a moment'}"
            )
        return local

    @contextlib.contextmanager
    def _fold_turn(self, local: LocalVolume) -> Iterator[None]:
        """Have the volume not be folded; a fold that takes its time is given up."""
        self._set_fold_unwanted(local, True)
        try:
            local.fold_lock.acquire()
        finally:
            self._set_fold_unwanted(local, False)
        try:
            yield
        finally:
            local.fold_lock.release()

    def _set_fold_unwanted(self, local: LocalVolume, is_unwanted: bool) -> None:
        with local.unwanted_lock:
            local.fold_unwanted += 1 if is_unwanted else -1
            if local.is_in_runtime:
                # Not owned, or closed this moment: nothing of it is folded.
                with (
                    contextlib.suppress(exception.AcstorError),
                    map_errors(f"volume {local.volume}"),
                ):
                    self._runtime().volume_set_fold_unwanted(local.volume, local.fold_unwanted > 0)

    def _require(self, local: LocalVolume, *states: LocalVolumeState) -> None:
        self._observe(local)
        if local.state not in states:
            kind = exception.FencedError if local.state is _S.FENCED else exception.UnavailableError
            raise kind(f"volume {local.volume} is {local.state} on {self._owner.host}")
