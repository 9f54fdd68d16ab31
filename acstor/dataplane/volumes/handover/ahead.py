"""Pushing and folding ahead of a hand-over, while the guest of the owner writes on."""

import logging
import time
from collections.abc import Callable

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.folds.exclusion import FoldExclusion
from acstor.dataplane.volumes.folds.folds import VolumeFolds
from acstor.dataplane.volumes.folds.turns import FoldTurns
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)

_ROUNDS_MAX = 8
"""Most times that a volume is pushed and folded ahead of its release, its guest writing on."""
_FOLD_BYTES_MIN = 32 << 20
"""Log in the origin from which on a volume that somebody waits for is folded first, bytes. Less of
it the next owner reads more quickly than the fold reads and writes: 0.27 s at 1 Gbit/s."""
_FOLD_OBJECTS_MIN = 512
"""Log objects from which on it is folded first: the next owner fetches eight at a time."""
_RETRY = 2.0
"""Pause after the origin did not take what was pushed ahead, seconds."""
_FOLD_PAUSE_MIN = 2.0
_FOLD_PAUSE_SHARE = 10.0
"""Pause after a fold that nobody asked for: at least so many seconds, and so many times what it
took. One of a large volume writes a large manifest each time, and a migration may be long."""
_FOLD_WAIT = 1.0
"""Longest wait for the fold of another volume, seconds: the next owner reads the log sooner."""
_FOLD_RETRY = 60.0
"""Pause after a fold that failed, seconds: what it stored stays until it is collected."""


class PushAhead:
    """Gets volumes ahead of their hand-over, so that it takes a moment only.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        observer: VolumeObserver,
        folds: VolumeFolds,
        turns: FoldTurns,
        exclusion: FoldExclusion,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._observer = observer
        self._folds = folds
        self._turns = turns
        self._exclusion = exclusion
        self._runtime = runtime

    def keep(self, local: LocalVolume) -> None:
        """Push ahead; where that fails the record is looked at as often as before."""
        asked = local.head_asked
        try:
            if asked is None:
                self.push(local, is_asked=False)
            else:
                self.get(local)
                local.head_ready = asked
        except exception.AcstorError as error:
            LOG.warning("%s", error)
            local.ahead_at = time.monotonic() + _RETRY

    def get(self, local: LocalVolume) -> None:
        """Push and fold, while requests go on, until a hand-over would take a moment only.

        :raises AcstorError: when the origin does not take it.
        """
        for _ in range(_ROUNDS_MAX):
            if local.state is not LocalVolumeState.SERVING or self._is_quickly_read(local):
                return
            if not self.push(local, is_asked=True):
                return

    def push(self, local: LocalVolume, *, is_asked: bool) -> bool:
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
            with self._turns.at_once(_FOLD_WAIT), self._exclusion.of(local):
                self._folds.fold_in_turn(local, 0.0)
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
        status = self._observer.status(local)
        names = ("dirty_bytes", "origin_log_bytes", "origin_log_objects")
        dirty, log, objects = (int(status.get(name) or 0) for name in names)
        return dirty + log < _FOLD_BYTES_MIN and objects < _FOLD_OBJECTS_MIN
