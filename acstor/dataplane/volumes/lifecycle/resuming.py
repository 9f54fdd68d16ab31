"""Volumes that the process before had open: taken over with their sockets, and gone on with."""

import dataclasses
import logging
from collections.abc import Mapping

from acstor import exception
from acstor.control.protocol import LocalVolumeState, VolumeRole
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.listeners import VolumeListeners
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.mending import VolumeMending, is_behind
from acstor.dataplane.volumes.ownership.outcomes import OwnerCheck
from acstor.dataplane.volumes.persisted_volume import PersistedStandby, PersistedVolume
from acstor.dataplane.volumes.sockets import descriptor_name
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)

_S = LocalVolumeState


class VolumeResuming:
    """Goes on with volumes after a restart, from their local logs."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        place: LogDirectory,
        files: VolumeFiles,
        mending: VolumeMending,
        listeners: VolumeListeners,
        serving: VolumeServing,
        forgetting: VolumeForgetting,
    ) -> None:
        self._table = table
        self._place = place
        self._files = files
        self._mending = mending
        self._listeners = listeners
        self._serving = serving
        self._forgetting = forgetting

    def restore(self, inherited: Mapping[str, int]) -> list[str]:
        """Take over what the process before had open; return the volumes that are to be resumed.

        Clients wait in the backlog of their sockets until :meth:`resume` is done with theirs.

        :param inherited: listening sockets by the name of their descriptor, now owned here.
        """
        sockets = dict(inherited)
        is_place_right = self._place.begin()
        kept_before = self._kept_before() if is_place_right else {}
        for volume, kept in kept_before.items():
            local = self._table.find_or_add(volume)
            local.move(LocalVolumeEvent.OPEN)
            self._listeners.restore(local, sockets.pop(descriptor_name(volume), None))
            if isinstance(kept, PersistedStandby):
                local.role = VolumeRole.STANDBY
            elif isinstance(kept, exception.CorruptError):
                local.error = str(kept)
                LOG.error("volume %s cannot be opened again: %s", volume, kept)
        self._listeners.close_unknown(sockets)
        if is_place_right:
            self._listeners.detach_others()
        return [local.volume for local in self._table.all() if local.error is None]

    def _kept_before(
        self,
    ) -> dict[str, PersistedVolume | PersistedStandby | exception.CorruptError]:
        found = self._files.kept()
        if found:
            try:
                # A release before gave the directory no identity.
                self._place.claim()
            except exception.UnavailableError as error:
                # The next open says so; volumes that are open are served all the same.
                LOG.warning("an unmounted directory of logs would not be noticed: %s", error)
        return found

    def resume(self, volume: str, check: OwnerCheck | None) -> None:
        """Go on with a volume that the process before had open, from its local log.

        :param check: what the record says; None: the origin does not answer. Then the volume is
            served, unless the process before has begun to give it back.
        """
        local = self._table.find_or_add(volume)
        with local.lock:
            if local.state is not _S.OPENING:
                return
            try:
                standby = self._files.find_readable_standby(volume)
                kept = self._files.find_readable(volume)
                if standby is not None:
                    self._serving.start_standby(local, standby.size_bytes)
                    # Killed in a hand-over: it may be this host's still.
                    local.is_unchecked = kept is not None
                    return
                if kept is None:
                    return
                kept = self._checked_kept(kept, check)
                self._serving.start(local, kept)
                if check is not None and check.record is None:
                    self._serving.fence(local)
                self._serve(local)
            except Exception as error:
                self._serving.drop(local)
                if str(error) != local.error:
                    LOG.error("volume %s cannot be opened again yet: %s", volume, error)
                local.error = str(error)
                return
            local.is_unchecked = check is None or is_behind(kept, check.record)
        LOG.info("volume %s is open again, epoch %d: %s", volume, kept.epoch, local.state)

    def _checked_kept(self, kept: PersistedVolume, check: OwnerCheck | None) -> PersistedVolume:
        """Return what to resume a volume with.

        :raises UnavailableError: when only the record says who owns it, and that is not known.
        """
        if check is None and self._files.is_doubtful(kept.volume):
            raise exception.UnavailableError(
                f"volume {kept.volume} was being closed and may be another host's: only the "
                "origin knows, and it does not answer",
                hint="the volume is tried again until the origin answers",
            )
        if check is None or check.record is None:
            return kept
        self._mending.reaffirm(kept)
        try:
            return self._mending.mended(kept, check.record)
        except exception.AcstorError as error:
            # What is here is right until something of it is collected; it is tried again.
            LOG.error("volume %s: %s", kept.volume, error)
            return dataclasses.replace(kept, next=max(kept.next, check.record.next))

    def _serve(self, local: LocalVolume) -> None:
        if local.state is _S.FENCED:
            self._serving.refuse(local)
        else:
            self._serving.serve(local, LocalVolumeEvent.SERVED)

    def finish(self, local: LocalVolume) -> None:
        """Go on with a volume that is to be closed: only then can it be given back.

        Whoever calls holds its lock.

        :raises UnavailableError: when that is not possible; everything stays as it is.
        """
        standby = self._files.find_readable_standby(local.volume)
        if standby is not None and self._files.find_readable(local.volume) is None:
            local.move(LocalVolumeEvent.FAILED)
            self._files.remove(local.volume, "its standby was closed")
            self._forgetting.discard(local)
            return
        self.resume(local.volume, self._check_or_none(local.volume))
        if local.state is _S.OPENING:
            raise exception.UnavailableError(
                f"volume {local.volume} is not open again since the data plane was restarted: "
                f"{local.error or 'nothing that can be opened was kept of it'}; mend that, or "
                f"have its log put aside: 'acstor volume give-up {local.volume}'"
            )

    def _check_or_none(self, volume: str) -> OwnerCheck | None:
        try:
            return self._mending.check_owner(volume)
        except exception.AcstorError as error:
            LOG.warning("volume %s: who owns it is not known: %s", volume, error)
            return None
