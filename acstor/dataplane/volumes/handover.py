"""Live migration: a volume follows its guest from one host to the other.

Both hosts have the volume open, one owns it. From then on the owner pushes what it has and folds
its log while its guest writes on, so that little is left whenever somebody asks. The other, the
standby, lets requests wait; the first of them makes it ask for the volume, in the record. The owner
sees that; its requests wait, too, while it pushes what is left, releases the volume and becomes the
standby, and whoever asked becomes the owner. So each request is answered by an owner, with
everything that any owner acknowledged, whichever guest it comes from. Requests wait as long as it
takes: an owner with much to push makes its own guest wait for a moment only, and an origin that is
away makes everybody wait.
"""

import abc
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.kept_clean import CleanReason
from acstor.dataplane.volumes.kept_volume import KeptStandby, KeptVolume
from acstor.dataplane.volumes.lifecycle import VolumeLifecycle
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.ownership.outcomes import Look
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.native import map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_ROUNDS_AHEAD = 8
"""Most times that a volume is pushed and folded ahead of its release, its guest writing on."""
_FOLD_BYTES_MIN = 32 << 20
"""Log in the origin from which on a volume that somebody waits for is folded first, bytes. Less of
it the next owner reads more quickly than the fold reads and writes: 0.27 s at 1 Gbit/s."""
_FOLD_OBJECTS_MIN = 512
"""The same in log objects, of which the next owner fetches eight at a time."""
_AHEAD_RETRY = 2.0
"""Pause after the origin did not take what was pushed ahead, seconds."""
_FOLD_PAUSE_MIN = 2.0
_FOLD_PAUSE_SHARE = 10.0
"""Pause after a fold that nobody asked for: at least so many seconds, and so many times what it
took. One of a large volume writes a large manifest each time, and a migration may be long."""
_FOLD_WAIT = 1.0
"""Longest wait for the fold of another volume, seconds: the next owner reads the log sooner."""
_FOLD_RETRY = 60.0
"""The same after one that failed, seconds: what it stored stays until it is collected."""
_PATIENCE = 3.0
"""Seconds for which a volume that was released is left to the host that asked for it first."""
_WAIT_MIN = 0.02
_WAIT_MAX = 0.1
_AWAY_WAIT = 1.0
"""Longest pause of a standby after the origin did not answer, seconds."""


class VolumeHandover(VolumeLifecycle):
    """How a volume goes from the owner to the standby, and back."""

    @abc.abstractmethod
    def _fold(self, local: LocalVolume, spread_s: float) -> dict[str, object]:
        """Turn the log of a volume in the origin into a manifest; holding its ``fold_lock``."""

    def wanted(self) -> list[str]:
        """Return the volumes of which this host is the standby and for which requests wait."""
        with self._lock:
            volumes = list(self._volumes.values())
        return [
            local.volume
            for local in volumes
            if local.state is _S.STANDBY and self._status_of_runtime(local).get("is_wanted")
        ]

    def has_standby(self) -> bool:
        """Return whether this host is the standby of a volume."""
        with self._lock:
            return any(local.state is _S.STANDBY for local in self._volumes.values())

    def served(self) -> list[str]:
        """Return the volumes that this host owns and serves."""
        with self._lock:
            return [one.volume for one in self._volumes.values() if one.state is _S.SERVING]

    def doorbell(self) -> str | None:
        """Return what changes whenever somebody waits for a volume of this host.

        :raises AcstorError: when the origin does not answer.
        """
        return self._doorbells.heard()

    def fetch(self, volume: str, wait: Callable[[float], object] = time.sleep) -> bool:
        """Ask for a volume and own it once its owner has released it; return whether it is here.

        However long that takes: requests wait for it.

        :raises AcstorError: when that cannot succeed later either.
        """
        started_at = time.monotonic()
        while True:
            pause = _WAIT_MIN, _WAIT_MAX
            try:
                with self._changing(volume) as local:
                    if local.state is not _S.STANDBY:
                        return local.state is _S.SERVING
                    record = self._owner.record(volume)
                    is_patient = time.monotonic() < started_at + _PATIENCE
                    if not self._migrations.may_take(record, is_patient=is_patient):
                        self._migrations.ask_for(volume, record)
                    elif self._try_to_own(local):
                        return True
            except exception.UnavailableError as error:
                LOG.warning("volume %s is asked for again: %s", volume, error)
                pause = _AWAY_WAIT / 2, _AWAY_WAIT
            wait(random.uniform(*pause))

    def _try_to_own(self, local: LocalVolume) -> bool:
        try:
            kept = self._owned(local.volume)
        except exception.ConflictError:
            return False
        self._start(local, kept)
        local.released = None
        local.is_unchecked = False
        local.role = local.role.OWNER
        local.move(LocalVolumeEvent.SERVED)
        LOG.info("volume %s was handed over to this host, epoch %d", local.volume, kept.epoch)
        return True

    def watch(self, volume: str) -> bool:
        """Look at the record of a volume that is served: fence or hand it over, as it says.

        Of a volume that may be asked for any moment what was written is pushed and folded by now.

        :returns: whether a migration of it is under way, so that it should be watched closely.
        """
        local, kept = self._local(volume), self._files.find_readable(volume)
        if kept is None:
            return False
        record = self._owner.record(volume)
        # Before what takes its time: the standby may read meanwhile.
        local.is_movable = record.is_standby_allowed
        if (record.owner, record.epoch) != (self._owner.host, kept.epoch):
            # Looked at again: it may have been opened anew between the two.
            self.checked(volume, self.look(volume))
        elif self._migrations.requester(record) is not None:
            self.hand_over(volume)
        elif local.released is not None:
            self._take_back(local)
        else:
            self._follow_record(local, kept, record)
        return record.is_standby_allowed

    def _follow_record(self, local: LocalVolume, kept: KeptVolume, record: "VolumeRecord") -> None:
        """Bring a volume into line with a record that names this host, and that nobody asks for."""
        self._follow_settings(local, kept, record)
        if self._is_behind(local, kept, record):
            self._mend(local)
        elif record.is_standby_allowed and time.monotonic() >= local.ahead_at:
            self._keep_ahead(local)

    def _keep_ahead(self, local: LocalVolume) -> None:
        """Push ahead; where that fails the record is looked at as often as before."""
        asked = local.head_asked
        try:
            if asked is None:
                self._push_ahead(local, is_asked=False)
            else:
                self._get_ahead(local)
                local.head_ready = asked
        except exception.AcstorError as error:
            LOG.warning("%s", error)
            local.ahead_at = time.monotonic() + _AHEAD_RETRY

    def hand_over(self, volume: str) -> None:
        """Push what is left, release the volume and become its standby.

        :raises AcstorError: when the push fails, or it cannot be noted: the volume is served here
            then as before. Where its log does not open again for that, requests wait, and the
            next call goes on. When it is not known whether the record was changed, this host is
            the standby, and finds out (:meth:`checked`).
        """
        local = self._known(volume)
        self._get_ahead(local)
        with self._fold_turn(local), local.lock:
            if local.state is not _S.SERVING:
                return
            kept = self._files.require(volume)
            if local.released is None:
                with map_errors(f"giving volume {volume} back"):
                    last = self._runtime().volume_release(volume)
                local.released = last["epoch"], last["sequence"]
            try:
                # Before the release: killed after it, the next process is the standby.
                self._files.note_clean(volume, CleanReason.RELEASED)
                self._files.note_standby(KeptStandby(volume, kept.size_bytes))
            except OSError as error:
                self._take_back(local)
                raise exception.UnavailableError(
                    f"volume {volume} is not handed over: {error}",
                    hint="make room in [volumes] directory, or mend its file system",
                ) from error
            local.error = None
            local.is_unchecked = True
            local.role = local.role.STANDBY
            local.move(LocalVolumeEvent.HANDED_OVER)
            self._finish_release(local, kept.size_bytes)
        LOG.info("volume %s is handed over; this host is its standby", volume)

    def _take_back(self, local: LocalVolume) -> None:
        """Go on as the owner of what the runtime gave back and the record does not say.

        :raises AcstorError: when the local log does not open: requests wait until it does, or the
            volume is handed over, or closed.
        """
        with local.lock:
            if local.state is not _S.SERVING or local.released is None:
                return
            try:
                self._start(local, self._files.require(local.volume))
            except exception.AcstorError as error:
                local.error = str(error)
                raise
            local.error = None
            local.released = None

    def _finish_release(self, local: LocalVolume, size_bytes: int) -> None:
        """Release what a standby has pushed whole.

        :raises AcstorError: when it is not known whether the record was changed.
        """
        assert local.released is not None
        try:
            self._owner.release(local.volume, *local.released)
        except exception.FencedError as error:
            LOG.warning("volume %s was released before: %s", local.volume, error)
        self._know_released(local, size_bytes)

    def _know_released(self, local: LocalVolume, size_bytes: int) -> None:
        local.released = None
        local.is_unchecked = False
        self._files.keep_standby(KeptStandby(local.volume, size_bytes))

    def checked(self, volume: str, look: Look | None) -> None:
        """See :meth:`VolumeLifecycle.checked`; a standby finishes the hand-over it began."""
        local = self._local(volume)
        with local.lock:
            if local.state is _S.STANDBY and local.is_unchecked:
                self._settle(local)
                return
        super().checked(volume, look)

    def _settle(self, local: LocalVolume) -> None:
        """Find out whether a standby is the owner still, and give the volume back if so."""
        kept = self._files.find_readable(local.volume)
        if kept is None:
            local.is_unchecked = False
            return
        record = self._owner.look(local.volume, kept.epoch).record
        if record is None:
            self._know_released(local, kept.size_bytes)
        elif local.released is not None:
            self._finish_release(local, kept.size_bytes)
        else:
            # Killed before the release; what was pushed last is not known any more. Whoever waits
            # for the volume gets it in the ordinary way.
            self._try_to_own(local)

    def _leave(self, local: LocalVolume, force: bool) -> None:
        if local.state is _S.STANDBY and local.is_unchecked:
            self._settle(local)
        super()._leave(local, force)

    def _get_ahead(self, local: LocalVolume) -> None:
        """Push and fold, while requests go on, until a hand-over would take a moment only.

        :raises AcstorError: when the origin does not take it.
        """
        for _ in range(_ROUNDS_AHEAD):
            if local.state is not _S.SERVING or self._is_quickly_read(local):
                return
            if not self._push_ahead(local, is_asked=True):
                return

    def _push_ahead(self, local: LocalVolume, *, is_asked: bool) -> bool:
        """Have less to push, and less to be read by the next owner, while requests go on.

        :param is_asked: whether somebody waits for the volume.
        :returns: whether the log was folded: what was written meanwhile may be much, too.
        :raises AcstorError: when the origin does not take it.
        """
        volume = local.volume
        with map_errors(f"pushing volume {volume} ahead"):
            is_log_long = self._runtime().volume_push_ahead(volume)
        started_at = time.monotonic()
        if not is_log_long or (not is_asked and started_at < local.fold_ahead_at):
            return False
        try:
            # One that takes its time gives way to this one.
            with self._fold_turns.at_once(_FOLD_WAIT), self._fold_turn(local):
                self._fold(local, 0.0)
        except exception.OverloadedError as error:
            LOG.info("the log of volume %s stays long for now: %s", volume, error)
            local.fold_ahead_at = time.monotonic() + _FOLD_PAUSE_MIN
            return False
        except (exception.AcstorError, OSError) as error:
            # The next owner reads the log instead: its guest waits for longer.
            LOG.warning("the log of volume %s stays long for a hand-over: %s", volume, error)
            local.fold_ahead_at = time.monotonic() + _FOLD_RETRY
            return False
        ended_at = time.monotonic()
        pause = max(_FOLD_PAUSE_MIN, _FOLD_PAUSE_SHARE * (ended_at - started_at))
        local.fold_ahead_at = ended_at + pause
        return True

    def _is_quickly_read(self, local: LocalVolume) -> bool:
        """Return whether little is left to push, and the next owner reads the log quickly."""
        status = self._status_of_runtime(local)
        names = ("dirty_bytes", "origin_log_bytes", "origin_log_objects")
        dirty, log, objects = (int(status.get(name) or 0) for name in names)
        return dirty + log < _FOLD_BYTES_MIN and objects < _FOLD_OBJECTS_MIN
