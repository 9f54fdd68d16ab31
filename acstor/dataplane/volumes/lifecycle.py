"""Opening, resuming and closing volumes; the page ``contributor/volumes`` tells how.

The steps are ordered so that a kill between two of them leaves what the next one can go on with.
"""

import contextlib
import dataclasses
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from acstor import exception
from acstor.control.protocol import LocalVolumeState, VolumeRole
from acstor.dataplane import descriptors
from acstor.dataplane.volumes import sockets as volume_sockets
from acstor.dataplane.volumes.kept_clean import CleanReason, has_none
from acstor.dataplane.volumes.kept_volume import KeptStandby, KeptVolume
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.mending import is_behind
from acstor.dataplane.volumes.ownership.limits import limits_of
from acstor.dataplane.volumes.ownership.outcomes import Look, Sealed, TakeOver
from acstor.dataplane.volumes.runtime import VolumeSpec
from acstor.dataplane.volumes.settings import VolumeSettings
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.native import map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_ROLES = {
    LocalVolumeEvent.SERVED: VolumeRole.OWNER,
    LocalVolumeEvent.FOLLOWED: VolumeRole.STANDBY,
}
_OPENABLE = frozenset({_S.CLOSED, _S.OPENING, _S.FENCED})
_SERVED = frozenset({_S.SERVING, _S.FROZEN})
_MAY_BE_FENCED = frozenset({_S.SERVING, _S.FROZEN, _S.CLOSING})
_SYNC_FAILED = "failed"
"""State of a volume in the runtime whose local disk failed to sync."""
_CHANGE_TIMEOUT = 60.0
"""Seconds that a close waits for what is being done to the volume: its caller gives up later."""


class VolumeLifecycle(VolumeSettings):
    """How volumes come to this host and leave it."""

    # Opening

    def open(self, volume: str, role: str) -> dict[str, object]:
        """Own a volume and serve it; return where. Nothing changes when it is served already.

        :raises NotFoundError: when there is no such volume.
        :raises FencedError: when another host owns it, or this one was not let attach.
        :raises UnavailableError: when the directory of the logs is not the one it was.
        """
        if not self._is_enabled:
            raise exception.UnsupportedError(
                f"host {self._owner.host} opens no volumes: [volumes] enabled is false",
                hint="enable them on hosts whose servers have volumes",
            )
        self._check_place()
        self._place.claim()
        with self._changing(volume) as local:
            self._observe(local)
            if local.state in _SERVED or (local.state is _S.CLOSING and local.released is None):
                # Clients that were there before go on without the origin; new ones do not begin:
                # another host may have taken the volume, and this one not have noticed yet.
                self.checked(volume, self.look(volume))
            if local.state in _OPENABLE:
                self._open(local, VolumeRole(role))
            elif local.state is _S.CLOSING:
                self._reopen(local, VolumeRole(role))
            return self._description(local)

    def _check_place(self) -> None:
        """Make sure that what is not here was never here.

        :raises UnavailableError: when the directory of the logs is not the one it was.
        """
        if self._place_error is not None:
            raise self._place_error
        self._place.check()

    def _open(self, local: LocalVolume, role: VolumeRole) -> None:
        if local.state is _S.FENCED:
            self._forget_fenced(local)
            self._register(local)
        if local.state is _S.CLOSED:
            # First of all: what is kept of a volume without it is of a release that had none.
            self._sockets.attach(local.volume)
            local.move(LocalVolumeEvent.OPEN)
        try:
            self._open_as(local, role)
        except Exception:
            self._drop_from_runtime(local)
            if local.listener is None:
                # Not so after a restart: clients wait, and the next attempt may serve them.
                local.move(LocalVolumeEvent.FAILED)
                self._files.remove_unserved(local.volume)
                self._discard(local)
            raise

    def _open_as(self, local: LocalVolume, role: VolumeRole) -> None:
        try:
            kept = self._owned(local.volume)
        except exception.ConflictError:
            if role is VolumeRole.OWNER:
                raise
            record = self._owner.record(local.volume)
            if not self._migrations.may_be_standby(record):
                raise
            # First of all: whoever was told that this host follows finds it so after a restart.
            self._files.keep_standby(KeptStandby(local.volume, record.size_bytes))
            self._follow(local, record.size_bytes)
            # The owner is to look closely from now on: requests may want the volume any moment.
            self._doorbells.ring(record)
            return
        self._start(local, kept)
        self._serve(local, LocalVolumeEvent.SERVED)
        LOG.info("volume %s is open, epoch %d", local.volume, kept.epoch)

    def _follow(self, local: LocalVolume, size_bytes: int) -> None:
        """Serve clients that wait until this host owns the volume."""
        with map_errors(f"following volume {local.volume}"):
            self._runtime().volume_follow(local.volume, size_bytes)
        local.is_in_runtime = True
        self._serve(local, LocalVolumeEvent.FOLLOWED)
        LOG.info("volume %s is open as a standby", local.volume)

    def _reopen(self, local: LocalVolume, role: VolumeRole) -> None:
        """Go on with a volume whose closing failed.

        :raises AcstorError: when it may have been given back and the origin does not answer.
        """
        if local.released is not None:
            look = self.look(local.volume)
            if look is None or look.record is None:
                # It was given back: what is here may be old by now.
                self._forget(local, "it was given back")
                self._register(local)
                self._open(local, role)
                return
            kept = self._mended(self._files.require(local.volume), look.record)
            self._reaffirm(kept)
            local.released = None
            self._start(local, kept)
        elif not local.is_in_runtime:
            self._start(local, self._files.require(local.volume))
        self._serve(local, LocalVolumeEvent.SERVED)

    def _owned(self, volume: str) -> KeptVolume:
        """Return what to open a volume with: what is here if it is still right, else own it."""
        # What cannot be read is not given up here: the local log may have what the origin lacks.
        kept = self._files.find(volume)
        if kept is not None:
            record = self._owner.look(volume, kept.epoch).record
            if record is not None:
                self._reaffirm(kept)
                return self._mended(kept, record)
            LOG.warning("volume %s: what is here is of epoch %d, which is over", volume, kept.epoch)
        return self._own(volume)

    def _own(self, volume: str) -> KeptVolume:
        clean = self._files.find_clean(volume)
        expected = None
        if clean is not None and has_none(clean):
            expected = self._owner.epoch_to_take(clean)
            if expected is not None:
                self._files.keep_clean(dataclasses.replace(clean, taking=expected))
        acquired = self._owner.acquire(volume, self._seal, expected, self._files.make)
        is_current = clean is not None and acquired.is_closed_log_current
        closed = clean.opened if clean is not None and is_current else None
        if acquired.take_over is not None:
            self._tell_take_over(volume, acquired.record, acquired.take_over)
        kept = _kept_of(volume, acquired.record, closed)
        if closed is None:
            self._files.make(volume)
        is_here = closed is not None and self._files.has_manifest(kept)
        self._files.keep(kept, None if is_here else self._owner.manifest(kept.manifest))
        return kept

    def _tell_take_over(self, volume: str, record: "VolumeRecord", take_over: TakeOver) -> None:
        """Say, to whoever may care, that a volume may have lost writes."""
        is_complete = not record.durability.may_lag()
        self.take_overs.count(is_complete=is_complete)
        if is_complete:
            LOG.info("volume %s is taken over from %s, complete", volume, take_over.owner)
            return
        at = take_over.content_at
        age = "of a time that is not known" if at is None else f"{time.time() - at:.0f} s old"
        LOG.warning(
            "volume %s is taken over from %s, which had not given it back: the last that it pushed "
            "is %s; what it acknowledged later is no part of the volume",
            volume,
            take_over.owner,
            age,
        )
        try:
            self._owner.note_take_over(volume, take_over)
        except exception.AcstorError as error:
            LOG.warning("volume %s: its record does not say so: %s", volume, error)

    def _seal(self, volume: str, epoch: int, first: int) -> Sealed:
        with map_errors(f"sealing epoch {epoch} of volume {volume}"):
            end = self._runtime().volume_seal(volume, epoch, first, self._log_origin)
        return Sealed(end["last"], end["seal"])

    def _start(self, local: LocalVolume, kept: KeptVolume) -> None:
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
            logs=kept.logs,
            durability=kept.durability,
            iops=kept.iops,
            bytes_per_s=kept.bytes_per_s,
            reserve_bytes=self._files.reserve_bytes(),
            adopts=kept.adopts,
        )
        with map_errors(f"opening volume {local.volume}"):
            self._runtime().volume_open(local.volume, spec, self._log_origin)
            local.is_in_runtime = True
            if kept.wanted_durability is not None:
                wanted = kept.wanted_durability
                self._runtime().volume_set_durability(local.volume, wanted)
                kept = dataclasses.replace(kept, durability=wanted, wanted_durability=None)
                self._files.keep(kept)

    def _serve(self, local: LocalVolume, event: LocalVolumeEvent) -> None:
        listener = self._listener(local)
        self._files.begin_serving(local.volume)
        with map_errors(f"serving volume {local.volume}"):
            token = self._sockets.token(local.volume)
            self._runtime().volume_serve(local.volume, os.dup(listener.fileno()), token)
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
        for volume, kept in self._kept_before().items():
            local = self._local(volume)
            local.move(LocalVolumeEvent.OPEN)
            descriptor = sockets.pop(volume_sockets.descriptor_name(volume), None)
            local.listener = self._sockets.restore(volume, descriptor)
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
        if self._place_error is None:
            self._sockets.detach_others()
        return [volume for volume, local in self._volumes.items() if local.error is None]

    def resume(self, volume: str, look: Look | None) -> None:
        """Go on with a volume that the process before had open, from its local log.

        :param look: what the record says; None: the origin does not answer. Then the volume is
            served, unless the process before has begun to give it back.
        """
        local = self._local(volume)
        with local.lock:
            if local.state is not _S.OPENING:
                return
            try:
                standby, kept = (
                    self._files.find_readable_standby(volume),
                    self._files.find_readable(volume),
                )
                if standby is not None:
                    self._follow(local, standby.size_bytes)
                    # Killed in a hand-over: it may be this host's still.
                    local.is_unchecked = kept is not None
                    return
                if kept is None:
                    return
                kept = self._checked_kept(kept, look)
                self._start(local, kept)
                if look is not None and look.record is None:
                    self._fence(local)
                self._serve_resumed(local)
            except Exception as error:
                self._drop_from_runtime(local)
                if str(error) != local.error:
                    LOG.error("volume %s cannot be opened again yet: %s", volume, error)
                local.error = str(error)
                return
            local.is_unchecked = look is None or is_behind(kept, look.record)
        LOG.info("volume %s is open again, epoch %d: %s", volume, kept.epoch, local.state)

    def _checked_kept(self, kept: KeptVolume, look: Look | None) -> KeptVolume:
        """Return what to resume a volume with.

        :raises UnavailableError: when only the record says who owns it, and that is not known.
        """
        if look is None and self._files.is_doubtful(kept.volume):
            raise exception.UnavailableError(
                f"volume {kept.volume} was being closed and may be another host's: only the "
                "origin knows, and it does not answer",
                hint="the volume is tried again until the origin answers",
            )
        if look is None or look.record is None:
            return kept
        self._reaffirm(kept)
        try:
            return self._mended(kept, look.record)
        except exception.AcstorError as error:
            # What is here is right until something of it is collected; it is tried again.
            LOG.error("volume %s: %s", kept.volume, error)
            return dataclasses.replace(kept, next=max(kept.next, look.record.next))

    def _serve_resumed(self, local: LocalVolume) -> None:
        if local.state is not _S.FENCED:
            self._serve(local, LocalVolumeEvent.SERVED)
            return
        with map_errors(f"serving volume {local.volume}"):
            # To answer EIO: a client that finds nobody would wait and try again for long.
            listener, token = self._listener(local), self._sockets.token(local.volume)
            self._runtime().volume_serve(local.volume, os.dup(listener.fileno()), token)

    def checked(self, volume: str, look: Look | None) -> None:
        """Take over what the record of a volume says of its owner.

        :param look: None: nothing is here of the volume.
        :raises AcstorError: when what is here is behind the record, and cannot be mended; when
            the volume is served and what was kept of it cannot be read.
        """
        local = self._local(volume)
        with local.lock:
            if look is None:
                # Without its epoch nobody knows whether it is another host's: it is not fenced.
                if local.state in _MAY_BE_FENCED:
                    self._files.require(volume)
                local.is_unchecked = False
                return
            kept = self._files.find(volume)
            if kept is None or kept.epoch != look.epoch:
                return  # opened anew meanwhile
            if look.record is None:
                local.is_unchecked = False
                if local.state in _MAY_BE_FENCED:
                    self._fence(local)
                return
        if local.state in _SERVED:
            self._mend(local)
        local.is_unchecked = False

    def _fence(self, local: LocalVolume) -> None:
        why = f"another host owns volume {local.volume} now"
        with map_errors(f"volume {local.volume}"):
            self._runtime().volume_fence(local.volume, why)
        local.error = why
        local.move(LocalVolumeEvent.FENCED)
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

        Nothing is lost by it, whatever ``force`` says: Nova uses that at each hard reboot.

        :param force: also while clients are connected.
        :raises InvalidError: while clients are connected, without ``force``.
        :raises UnavailableError: when the origin does not take what is left: the volume waits,
            closing, and its writes are kept here. Also when it is being opened, and that fails or
            takes too long, or the directory of the logs is not the one it was.
        """
        local = self._volumes.get(volume)
        if local is None:
            self._check_place()
            return
        with self._fold_turn(local), self._turn(local):
            if local.state is _S.OPENING:
                self._finish_opening(local)
            if local.state is _S.CLOSED:
                return
            self._observe(local)
            if local.state is not _S.FENCED:
                self._leave(local, force)
            if local.state is _S.FENCED:
                self._forget_fenced(local)
            else:
                self._forget(local, "it was closed")
        LOG.info("volume %s is closed", volume)

    @contextlib.contextmanager
    def _turn(self, local: LocalVolume) -> Iterator[None]:
        """Lock a volume for a close, unless what is being done to it takes too long."""
        if not local.lock.acquire(timeout=_CHANGE_TIMEOUT):
            raise exception.UnavailableError(
                f"volume {local.volume} is {local.state}, and that takes longer than "
                f"{_CHANGE_TIMEOUT:g} s",
                hint="it goes on; try again",
            )
        try:
            yield
        finally:
            local.lock.release()

    def _finish_opening(self, local: LocalVolume) -> None:
        """Go on with a volume that was open before a restart: only then can it be given back.

        :raises UnavailableError: when that is not possible; everything stays as it is.
        """
        if (
            self._files.find_readable_standby(local.volume) is not None
            and self._files.find_readable(local.volume) is None
        ):
            local.move(LocalVolumeEvent.FAILED)
            self._files.remove(local.volume, "its standby was closed")
            self._discard(local)
            return
        self.resume(local.volume, self._look_or_none(local.volume))
        if local.state is _S.OPENING:
            raise exception.UnavailableError(
                f"volume {local.volume} is not open again since the data plane was restarted: "
                f"{local.error or 'nothing that can be opened was kept of it'}; mend that, or "
                f"have its log put aside: 'acstor volume give-up {local.volume}'"
            )

    def _look_or_none(self, volume: str) -> Look | None:
        try:
            return self.look(volume)
        except exception.AcstorError as error:
            LOG.warning("volume %s: who owns it is not known: %s", volume, error)
            return None

    def _leave(self, local: LocalVolume, force: bool) -> None:
        """Serve nobody any more, and own the volume no more."""
        runtime = self._runtime()
        with map_errors(f"closing volume {local.volume}"):
            if local.state is _S.FROZEN:
                runtime.volume_thaw(local.volume)
            if local.is_in_runtime:
                runtime.volume_unserve(local.volume, force)
        is_owner = local.state is not _S.STANDBY
        local.move(LocalVolumeEvent.CLOSE)
        try:
            if is_owner:
                self._release(local)
        except exception.FencedError as error:
            local.error = str(error)
            local.move(LocalVolumeEvent.FENCED)
        except exception.AcstorError as error:
            local.error = str(error)
            raise

    def _release(self, local: LocalVolume) -> None:
        """Push what is left and give the volume back.

        Where the push fails it is this host's still. Where the record is not known to be changed
        it is whoever's the record says, and nobody is served before that was read.
        """
        if local.released is None:
            self._start_anew(local)
            with map_errors(f"giving volume {local.volume} back"):
                last = self._runtime().volume_release(local.volume)
            local.released = last["epoch"], last["sequence"]
        # Before the record says so: a process that is killed in between finds what it may remove.
        self._files.note_clean(local.volume, CleanReason.RELEASED)
        self._owner.release(local.volume, *local.released)
        local.released = None

    def _start_anew(self, local: LocalVolume) -> None:
        """Open a log again whose disk failed to sync: a push takes only what the disk has of it.

        What the disk lost, guests were told by a flush that failed. Nobody is served meanwhile.
        """
        if local.is_in_runtime and self._status_of_runtime(local).get("state") != _SYNC_FAILED:
            return
        LOG.warning("volume %s: its local log is opened again, to be given back", local.volume)
        kept = self._files.require(local.volume)
        self._drop_from_runtime(local)
        self._start(local, kept)

    def _forget_fenced(self, local: LocalVolume) -> None:
        dirty_bytes = self._status_of_runtime(local).get("dirty_bytes")
        LOG.warning(
            "volume %s: another host owns it; %s bytes written here were never pushed",
            local.volume,
            "an unknown number of" if dirty_bytes is None else dirty_bytes,
        )
        if local.is_in_runtime:
            with map_errors(f"closing volume {local.volume}"):
                self._runtime().volume_unserve(local.volume, True)
        self._drop_from_runtime(local)
        if dirty_bytes == 0 and self._files.find_clean(local.volume) is None:
            self._files.note_clean(local.volume, CleanReason.PUSHED)
        local.move(LocalVolumeEvent.CLOSE)
        self._forget(local, "another host owns the volume")

    def _forget(self, local: LocalVolume, why: str) -> None:
        self._drop_from_runtime(local)
        local.move(LocalVolumeEvent.CLOSED)
        # The socket last: who finds it gone finds the volume given back.
        self._files.close(local.volume, why)
        self._discard(local)

    def _discard(self, local: LocalVolume) -> None:
        """Remove the socket of a volume that is closed, and know it no more."""
        self._supervisor.remove(volume_sockets.descriptor_name(local.volume))
        self._sockets.detach(local.volume)
        if local.listener is not None:
            local.listener.close()
            local.listener = None
        local.error = None
        local.released = None
        local.is_unchecked = False
        with self._lock:
            self._volumes.pop(local.volume, None)

    def _drop_from_runtime(self, local: LocalVolume) -> None:
        if local.is_in_runtime:
            local.is_in_runtime = False
            with map_errors(f"closing volume {local.volume}"):
                self._runtime().volume_close(local.volume)


def _kept_of(volume: str, record: "VolumeRecord", closed: KeptVolume | None) -> KeptVolume:
    """Return what a volume is opened with.

    :param closed: under which the log was closed that it goes on with; None: it gets a new one.
    """
    iops, bytes_per_s = limits_of(record)
    durability = record.durability.to_fields()
    is_changed = closed is not None and closed.durability != durability
    return KeptVolume(
        volume=volume,
        epoch=record.epoch,
        next=record.next,
        size_bytes=record.size_bytes,
        manifest=record.manifest,
        logs=[log.to_fields() for log in record.logs],
        # What was of class none and is to travel now is noticed when the class changes.
        durability=closed.durability if closed is not None else durability,
        iops=iops,
        bytes_per_s=bytes_per_s,
        adopts=None if closed is None else closed.epoch,
        wanted_durability=durability if is_changed else None,
    )
