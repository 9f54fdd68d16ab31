"""One volume on this host: its state, its socket, and one change of it at a time."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

from acstor import exception
from acstor.control.protocol import LocalVolumeState, VolumeRole
from acstor.dataplane.volumes.states import LocalVolumeEvent, next_state

_TURN_TIMEOUT = 60.0
"""Seconds that a close waits for what is being done to the volume: its caller gives up later."""


class LocalVolume:
    """Knowledge of the host process about a volume, beside that of the runtime.

    :class:`.table.VolumeTable` has the order of its locks.

    :param volume: its id.
    """

    def __init__(self, volume: str) -> None:
        self.volume = volume
        self.role = VolumeRole.OWNER
        self.listener: socket.socket | None = None
        self.is_in_runtime = False
        """True if the runtime has it open."""
        self.is_unchecked = False
        """True if it was opened after a restart without a check of its owner."""
        self.is_movable = False
        """True if its record lets another host be its standby."""
        self.head_asked: str | None = None
        """Nonce of a standby's question for its first sectors, from when on it is got ahead."""
        self.head_ready: str | None = None
        """The same, when little was left to push and to be read."""
        self.ahead_at = 0.0
        """From when on it is pushed ahead of a hand-over again after that failed (monotonic)."""
        self.fold_ahead_at = 0.0
        """From when on it is folded again before anybody asks for it (monotonic)."""
        self.error: str | None = None
        """Reason for which it is not served, or not folded."""
        self.released: tuple[int, int] | None = None
        """Epoch and last log object of what the runtime gave back and the record does not say."""
        self.freezes: dict[str, float] = {}
        """Holders of the writes, each with the time until which it holds them (monotonic)."""
        self.has_given_way = False
        """True if its last fold was given up for that of another volume."""
        self.fold_unwanted = 0
        """Number of those that wait for a fold of it that is under way to be given up."""
        self.unwanted_lock = threading.Lock()
        """Of ``fold_unwanted`` and what the runtime knows of it; the last to be taken."""
        self.lock = threading.RLock()
        """Held for each change; what only asks does not take it."""
        self.fold_lock = threading.Lock()
        """Held while it is folded; taken before ``lock``."""
        self._state = LocalVolumeState.CLOSED

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Take ``lock``, unless what is being done to the volume takes too long.

        :raises UnavailableError: when it does.
        """
        if not self.lock.acquire(timeout=_TURN_TIMEOUT):
            raise exception.UnavailableError(
                f"volume {self.volume} is {self.state}, and that takes longer than "
                f"{_TURN_TIMEOUT:g} s",
                hint="it goes on; try again",
            )
        try:
            yield
        finally:
            self.lock.release()

    def hold(self, holder: str, timeout_s: float) -> float:
        """Note who holds the writes; return for how long they are to be held from now on."""
        now = time.monotonic()
        self.freezes[holder] = now + timeout_s
        return max(self.freezes.values()) - now

    def let_go(self, holder: str) -> tuple[bool, float]:
        """Note who holds the writes no more.

        :returns: whether that was held until now, and for how long others hold the writes still.
        """
        now = time.monotonic()
        was_held = self._state is LocalVolumeState.FROZEN and self.freezes.pop(holder, now) > now
        self.freezes = {one: until for one, until in self.freezes.items() if until > now}
        return was_held, max(self.freezes.values(), default=now) - now

    @property
    def state(self) -> LocalVolumeState:
        """State of the volume here."""
        return self._state

    def move(self, event: LocalVolumeEvent) -> None:
        """Go to the state after ``event``."""
        with self.lock:
            self._state = next_state(self._state, event)

    def observe(self, state_of_runtime: object) -> bool:
        """Follow what the runtime noticed itself; return whether that was fencing.

        Nothing is followed while the volume is being changed: whoever only asks does not wait.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
            if state_of_runtime == "fenced" and self._state in _MAY_BE_FENCED:
                self.move(LocalVolumeEvent.FENCED)
                return True
            if state_of_runtime == "open" and self._state is LocalVolumeState.FROZEN:
                self.move(LocalVolumeEvent.THAW)  # the time for freezing was over
        finally:
            self.lock.release()
        return False


_MAY_BE_FENCED = frozenset(
    {LocalVolumeState.SERVING, LocalVolumeState.FROZEN, LocalVolumeState.CLOSING}
)
