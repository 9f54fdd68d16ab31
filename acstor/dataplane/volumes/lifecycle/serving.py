"""Volumes in the runtime: opened there with what is here of them, served, fenced and let go."""

import dataclasses
import logging
import os
from collections.abc import Callable

from acstor import exception
from acstor.control.protocol import LocalVolumeState, VolumeRole
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.listeners import VolumeListeners
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.mending import VolumeMending
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.dataplane.volumes.runtime import LogOrigin, VolumeSpec
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)

_ROLES = {
    LocalVolumeEvent.SERVED: VolumeRole.OWNER,
    LocalVolumeEvent.FOLLOWED: VolumeRole.STANDBY,
}


class VolumeServing:
    """Serves volumes to their clients; whoever calls holds the volume's lock.

    :param access: to where logs go.
    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        files: VolumeFiles,
        listeners: VolumeListeners,
        mending: VolumeMending,
        access: OriginAccess,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._files = files
        self._listeners = listeners
        self._mending = mending
        self._access = access
        self._runtime = runtime

    def start(self, local: LocalVolume, kept: PersistedVolume) -> None:
        """Have the runtime open a volume, with what is here of its log."""
        if local.is_in_runtime:
            # Clients of the standby wait, and write as soon as it is open.
            self._files.begin_serving(local.volume)
        spec = VolumeSpec(
            directory=self._files.log_directory(local.volume),
            epoch=kept.epoch,
            next=kept.next,
            size_bytes=kept.size_bytes,
            manifest_path=self._files.manifest_path(kept),
            manifest=kept.manifest,
            logs=kept.logs,
            durability=kept.durability,
            iops=kept.iops,
            bytes_per_s=kept.bytes_per_s,
            reserve_bytes=self._files.reserve_bytes(),
            adopts=kept.adopts,
        )
        log = self._access.log_of(local.volume, kept.epoch, kept.member, kept.logs)
        try:
            self._open(local, spec, log)
        except exception.CorruptError:
            if not self._mending.has_fetched_damaged(kept):
                raise
            self._open(local, spec, log)
        if kept.wanted_durability is not None:
            wanted = kept.wanted_durability
            with map_errors(f"opening volume {local.volume}"):
                self._runtime().volume_set_durability(local.volume, wanted)
            kept = dataclasses.replace(kept, durability=wanted, wanted_durability=None)
            self._files.keep(kept)

    def _open(self, local: LocalVolume, spec: VolumeSpec, log: LogOrigin) -> None:
        with map_errors(f"opening volume {local.volume}"):
            self._runtime().volume_open(local.volume, spec, log)
        local.is_in_runtime = True

    def start_standby(self, local: LocalVolume, size_bytes: int) -> None:
        """Serve clients that wait until this host owns the volume."""
        with map_errors(f"following volume {local.volume}"):
            self._runtime().volume_follow(local.volume, size_bytes)
        local.is_in_runtime = True
        self.serve(local, LocalVolumeEvent.FOLLOWED)
        LOG.info("volume %s is open as a standby", local.volume)

    def serve(self, local: LocalVolume, event: LocalVolumeEvent) -> None:
        """Let clients in.

        :param event: of the volume, which is that of its role, too.
        """
        listener = self._listeners.bound(local)
        self._files.begin_serving(local.volume)
        with map_errors(f"serving volume {local.volume}"):
            token = self._listeners.token(local.volume)
            self._runtime().volume_serve(local.volume, os.dup(listener.fileno()), token)
        local.error = None
        local.role = _ROLES[event]
        local.move(event)

    def refuse(self, local: LocalVolume) -> None:
        """Let clients of a fenced volume in, to answer EIO.

        One that finds nobody would wait and try again for long.
        """
        with map_errors(f"serving volume {local.volume}"):
            listener, token = self._listeners.bound(local), self._listeners.token(local.volume)
            self._runtime().volume_serve(local.volume, os.dup(listener.fileno()), token)

    def fence(self, local: LocalVolume) -> None:
        """Serve and store nothing more of a volume that another host owns."""
        why = f"another host owns volume {local.volume} now"
        with map_errors(f"volume {local.volume}"):
            self._runtime().volume_fence(local.volume, why)
        local.error = why
        local.move(LocalVolumeEvent.FENCED)
        LOG.error("%s; its clients get EIO until it is closed here", why)

    def end(self, local: LocalVolume, force: bool) -> None:
        """Serve nobody any more; the runtime has the volume open still.

        :param force: also while clients are connected.
        :raises InvalidError: while clients are connected, without ``force``.
        """
        with map_errors(f"closing volume {local.volume}"):
            if local.state is LocalVolumeState.FROZEN:
                self._runtime().volume_thaw(local.volume)
            if local.is_in_runtime:
                self._runtime().volume_unserve(local.volume, force)

    def drop(self, local: LocalVolume) -> None:
        """Have the runtime not have a volume open."""
        if local.is_in_runtime:
            local.is_in_runtime = False
            with map_errors(f"closing volume {local.volume}"):
                self._runtime().volume_close(local.volume)
