"""Opening, resuming and closing volumes; the page ``contributor/volumes`` tells how.

The steps are ordered so that a kill between two of them leaves what the next one can go on with.
"""

import logging
import os
import socket
from collections.abc import Mapping

from acstor import exception
from acstor.admin.protocol import VolumeRole, VolumeState
from acstor.dataplane import translated
from acstor.dataplane_host import descriptors, volume_sockets
from acstor.dataplane_host.kept_volume import KeptStandby, KeptVolume
from acstor.dataplane_host.local_volume import LocalVolume
from acstor.dataplane_host.volume_owner import Sealed, limits_of
from acstor.dataplane_host.volume_runtime import VolumeSpec
from acstor.dataplane_host.volume_states import VolumeEvent
from acstor.dataplane_host.volume_table import VolumeTable

LOG = logging.getLogger(__name__)

_S = VolumeState
_ROLES = {
    VolumeEvent.SERVED: VolumeRole.OWNER,
    VolumeEvent.FOLLOWED: VolumeRole.STANDBY,
}
_OPENABLE = frozenset({_S.CLOSED, _S.OPENING, _S.FENCED})


class VolumeLifecycle(VolumeTable):
    """How volumes come to this host and leave it."""

    # Opening

    def open(self, volume: str, role: str) -> dict[str, object]:
        """Own a volume and serve it; return where. Nothing changes when it is served already.

        :raises NotFoundError: when there is no such volume.
        :raises FencedError: when another host owns it, or this one was not let attach.
        """
        if not self._is_enabled:
            raise exception.UnsupportedError(
                f"host {self._owner.host} opens no volumes: [volumes] enabled is false",
                hint="enable them on hosts whose servers have volumes",
            )
        with self._changing(volume) as local:
            self._observe(local)
            if local.state in _OPENABLE:
                self._open(local, VolumeRole(role))
            elif local.state is _S.CLOSING:
                self._reopen(local)
            return self._description(local)

    def _open(self, local: LocalVolume, role: VolumeRole) -> None:
        if local.state is _S.FENCED:
            self._forget_fenced(local)
            self._register(local)
        if local.state is _S.CLOSED:
            local.move(VolumeEvent.OPEN)
        try:
            self._open_as(local, role)
        except Exception:
            self._drop_from_runtime(local)
            if local.listener is None:
                # Not so after a restart: clients wait, and the next attempt may serve them.
                local.move(VolumeEvent.FAILED)
                self._discard(local)
            raise

    def _open_as(self, local: LocalVolume, role: VolumeRole) -> None:
        try:
            kept = self._owned(local.volume)
        except exception.ConflictError:
            if role is VolumeRole.OWNER:
                raise
            record = self._owner.record(local.volume)
            if not self._owner.may_follow(record):
                raise
            # First of all: whoever was told that this host follows finds it so after a restart.
            self._files.keep_standby(KeptStandby(local.volume, record.size_bytes))
            self._follow(local, record.size_bytes)
            # The owner is to look closely from now on: requests may want the volume any moment.
            self._owner.ring(record)
            return
        self._start(local, kept)
        self._serve(local, VolumeEvent.SERVED)
        LOG.info("volume %s is open, epoch %d", local.volume, kept.epoch)

    def _follow(self, local: LocalVolume, size_bytes: int) -> None:
        """Serve clients that wait until this host owns the volume."""
        with translated(f"following volume {local.volume}"):
            self._runtime().volume_follow(local.volume, size_bytes)
        local.is_in_runtime = True
        self._serve(local, VolumeEvent.FOLLOWED)
        LOG.info("volume %s is open as a standby", local.volume)

    def _reopen(self, local: LocalVolume) -> None:
        """Go on with a volume that could not be given back."""
        kept = self._find(local.volume)
        if local.released is not None and kept is not None:
            local.released = None
            self._start(local, kept)
        self._serve(local, VolumeEvent.SERVED)

    def _owned(self, volume: str) -> KeptVolume:
        """Return what to open a volume with: what is here if it is still right, else own it."""
        # What cannot be read is not given up here: the local log may have what the origin lacks.
        kept = self._files.find(volume)
        if kept is not None and self._owner.is_owner(volume, kept.epoch):
            return kept
        if kept is not None:
            LOG.warning("volume %s: what is here is of epoch %d, which is over", volume, kept.epoch)
        return self._own(volume)

    def _find(self, volume: str) -> KeptVolume | None:
        try:
            return self._files.find(volume)
        except exception.CorruptError as error:
            LOG.error("volume %s: %s", volume, error)
            return None

    def _find_standby(self, volume: str) -> KeptStandby | None:
        try:
            return self._files.find_standby(volume)
        except exception.CorruptError as error:
            LOG.error("volume %s: %s", volume, error)
            return None

    def _kept(self, volume: str) -> KeptVolume:
        kept = self._files.find(volume)
        if kept is None:
            raise exception.InternalError(f"nothing is kept of volume {volume}, which is open")
        return kept

    def _own(self, volume: str) -> KeptVolume:
        record = self._owner.acquire(volume, self._seal)
        iops, bytes_per_s = limits_of(record)
        kept = KeptVolume(
            volume=volume,
            epoch=record.epoch,
            next=record.next,
            size_bytes=record.size_bytes,
            manifest=record.manifest,
            logs=[log.to_fields() for log in record.logs],
            durability=record.durability.to_fields(),
            iops=iops,
            bytes_per_s=bytes_per_s,
        )
        self._files.make(volume)
        self._files.keep(kept, self._owner.manifest(record.manifest))
        return kept

    def _seal(self, volume: str, epoch: int, first: int) -> Sealed:
        with translated(f"sealing epoch {epoch} of volume {volume}"):
            end = self._runtime().volume_seal(volume, epoch, first, self._owner.log_origin)
        return Sealed(end["last"], end["seal"])

    def _start(self, local: LocalVolume, kept: KeptVolume) -> None:
        """Have the runtime open a volume, with what is here of its log."""
        spec = VolumeSpec(
            directory=self._files.log_directory(local.volume),
            epoch=kept.epoch,
            next=kept.next,
            size_bytes=kept.size_bytes,
            manifest_path=self._files.manifest_path(kept),
            logs=kept.logs,
            durability=kept.durability,
            iops=kept.iops,
            bytes_per_s=kept.bytes_per_s,
            reserve_bytes=self._files.reserve_bytes(),
        )
        with translated(f"opening volume {local.volume}"):
            self._runtime().volume_open(local.volume, spec, self._owner.log_origin)
        local.is_in_runtime = True

    def _serve(self, local: LocalVolume, event: VolumeEvent) -> None:
        listener = self._listener(local)
        with translated(f"serving volume {local.volume}"):
            self._runtime().volume_serve(local.volume, os.dup(listener.fileno()))
        local.error = None
        local.role = _ROLES[event]
        local.move(event)

    def _listener(self, local: LocalVolume) -> socket.socket:
        if local.listener is None:
            local.listener = self._sockets.bind(local.volume)
            descriptors.keep(
                self._supervisor,
                volume_sockets.descriptor_name(local.volume),
                local.listener.fileno(),
                is_inherited=False,
            )
        return local.listener

    # After a restart

    def restore(self, inherited: Mapping[str, int]) -> list[str]:
        """Take over what the process before had open; return the volumes that are to be resumed.

        Clients wait in the backlog of their sockets until :meth:`resume` is done with theirs.

        :param inherited: listening sockets by the name of their descriptor, now owned here.
        """
        sockets = dict(inherited)
        for volume, kept in self._files.kept().items():
            local = self._local(volume)
            local.move(VolumeEvent.OPEN)
            descriptor = sockets.pop(volume_sockets.descriptor_name(volume), None)
            if descriptor is not None:
                local.listener = self._sockets.adopt(volume, descriptor)
            if local.listener is not None:
                name = volume_sockets.descriptor_name(volume)
                self._supervisor.adopt(name, local.listener.fileno())
            else:
                self._listener(local)
            if isinstance(kept, KeptStandby):
                local.role = VolumeRole.STANDBY
            elif isinstance(kept, exception.CorruptError):
                local.error = str(kept)
                LOG.error("volume %s cannot be opened again: %s", volume, kept)
        for name, descriptor in sockets.items():
            LOG.warning("closing the socket of a volume that is not open: %s", name)
            os.close(descriptor)
            self._supervisor.remove(name)
        return [volume for volume, local in self._volumes.items() if local.error is None]

    def resume(self, volume: str, is_owner: bool | None) -> None:
        """Go on with a volume that the process before had open, from its local log.

        :param is_owner: whether the ref says so; None: the origin does not answer. The log objects
            themselves fence a host that is not, so it serves meanwhile.
        """
        local = self._local(volume)
        with local.lock:
            if local.state is not _S.OPENING:
                return
            try:
                standby, kept = self._find_standby(volume), self._find(volume)
                if standby is not None:
                    # Whether it still is one shows when somebody wants something of it.
                    self._follow(local, standby.size_bytes)
                    return
                if kept is None:
                    return
                self._start(local, kept)
                if is_owner is False:
                    self._fence(local)
                self._serve_resumed(local)
            except Exception as error:
                self._drop_from_runtime(local)
                if str(error) != local.error:
                    LOG.error("volume %s cannot be opened again yet: %s", volume, error)
                local.error = str(error)
                return
            local.is_unchecked = is_owner is None
        LOG.info("volume %s is open again, epoch %d: %s", volume, kept.epoch, local.state)

    def _serve_resumed(self, local: LocalVolume) -> None:
        if local.state is not _S.FENCED:
            self._serve(local, VolumeEvent.SERVED)
            return
        with translated(f"serving volume {local.volume}"):
            # To answer EIO: a client that finds nobody would wait and try again for long.
            self._runtime().volume_serve(local.volume, os.dup(self._listener(local).fileno()))

    def is_owner(self, volume: str) -> bool:
        """Return whether the ref still names this host and the epoch that is here.

        :raises AcstorError: when the origin does not answer.
        """
        kept = self._find(volume)
        return kept is not None and self._owner.is_owner(volume, kept.epoch)

    def checked(self, volume: str, is_owner: bool) -> None:
        """Note who owns a volume that was resumed without knowing."""
        local = self._local(volume)
        with local.lock:
            local.is_unchecked = False
            if not is_owner and local.state in {_S.SERVING, _S.FROZEN, _S.CLOSING}:
                self._fence(local)

    def _fence(self, local: LocalVolume) -> None:
        why = f"another host owns volume {local.volume} now"
        with translated(f"volume {local.volume}"):
            self._runtime().volume_fence(local.volume, why)
        local.error = why
        local.move(VolumeEvent.FENCED)
        LOG.error("%s; its clients get EIO until it is closed here", why)

    def leave(self, *, is_final: bool) -> None:
        """Forget the sockets of a process that ends; the next one has the volumes.

        :param is_final: no process follows soon: clients need not wait for it.
        """
        with self._lock:
            volumes = list(self._volumes.values())
        for local in volumes:
            if is_final:
                self._supervisor.remove(volume_sockets.descriptor_name(local.volume))
                self._sockets.remove(local.volume)

    # Closing

    def close(self, volume: str, force: bool) -> None:
        """Push what is left, own the volume no more, remove the socket. Nothing when not open.

        :raises InvalidError: while clients are connected, without ``force``.
        :raises UnavailableError: when the origin does not take what is left; the volume waits,
            closing, and its writes are kept here.
        """
        local = self._volumes.get(volume)
        if local is None:
            return
        with self._fold_turn(local), local.lock:
            if local.state is _S.CLOSED:
                return
            if local.state is _S.OPENING:
                self._close_unopened(local, force)
                return
            self._observe(local)
            if local.state is not _S.FENCED:
                self._leave(local, force)
            self._forget_fenced(local) if local.state is _S.FENCED else self._forget(local)
        LOG.info("volume %s is closed", volume)

    def _leave(self, local: LocalVolume, force: bool) -> None:
        """Serve nobody any more, and own the volume no more."""
        runtime = self._runtime()
        with translated(f"closing volume {local.volume}"):
            if local.state is _S.FROZEN:
                runtime.volume_thaw(local.volume)
            runtime.volume_unserve(local.volume, force)
        is_owner = local.state is not _S.STANDBY
        local.move(VolumeEvent.CLOSE)
        try:
            if is_owner:
                self._release(local)
        except exception.FencedError as error:
            local.error = str(error)
            local.move(VolumeEvent.FENCED)
        except exception.AcstorError as error:
            local.error = str(error)
            raise

    def _release(self, local: LocalVolume) -> None:
        """Push what is left and give the volume back; where that fails it is this host's still."""
        if local.released is None:
            with translated(f"giving volume {local.volume} back"):
                last = self._runtime().volume_release(local.volume)
            local.released = last["epoch"], last["sequence"]
        self._owner.release(local.volume, *local.released)
        local.released = None

    def _close_unopened(self, local: LocalVolume, force: bool) -> None:
        """Give up a volume that a restart could not open again."""
        if not force and self._find_standby(local.volume) is None:
            raise exception.UnavailableError(
                f"volume {local.volume} is not open again since the data plane was restarted: "
                f"{local.error or 'it is being opened'}",
                hint="mend that, or close it with force: what was not pushed of it is then lost",
            )
        if self._find_standby(local.volume) is None:
            LOG.error("volume %s is given up: what was not pushed of it is lost", local.volume)
        local.move(VolumeEvent.FAILED)
        self._discard(local)

    def _forget_fenced(self, local: LocalVolume) -> None:
        status = self._status_of_runtime(local)
        LOG.warning(
            "volume %s: another host owns it; %s bytes written here were never pushed",
            local.volume,
            status.get("dirty_bytes", "an unknown number of"),
        )
        if local.is_in_runtime:
            with translated(f"closing volume {local.volume}"):
                self._runtime().volume_unserve(local.volume, True)
        local.move(VolumeEvent.CLOSE)
        self._forget(local)

    def _forget(self, local: LocalVolume) -> None:
        self._drop_from_runtime(local)
        local.move(VolumeEvent.CLOSED)
        self._discard(local)

    def _discard(self, local: LocalVolume) -> None:
        """Remove files and socket of a volume that is closed."""
        # The socket last: who finds it gone finds the volume given back.
        self._files.remove(local.volume)
        self._supervisor.remove(volume_sockets.descriptor_name(local.volume))
        self._sockets.remove(local.volume)
        if local.listener is not None:
            local.listener.close()
            local.listener = None
        local.error = None
        with self._lock:
            self._volumes.pop(local.volume, None)

    def _drop_from_runtime(self, local: LocalVolume) -> None:
        if local.is_in_runtime:
            local.is_in_runtime = False
            with translated(f"closing volume {local.volume}"):
                self._runtime().volume_close(local.volume)
