"""One volume on this host: its state, its socket, and one change of it at a time."""

import socket
import threading

from acstor.admin.protocol import VolumeRole, VolumeState
from acstor.dataplane_host.volume_states import VolumeEvent, next_state


class LocalVolume:
    """What the host process knows of a volume beside what the runtime does.

    :param volume: its id.
    """

    def __init__(self, volume: str) -> None:
        self.volume = volume
        self.role = VolumeRole.OWNER
        self.listener: socket.socket | None = None
        self.is_in_runtime = False
        """Whether the runtime has it open."""
        self.is_unchecked = False
        """Whether it was opened after a restart without a look at who owns it."""
        self.error: str | None = None
        """Why it is not served, or not folded."""
        self.released: tuple[int, int] | None = None
        """Epoch and last log object of what the runtime gave back and the record does not say."""
        self.lock = threading.RLock()
        """Held for each change; what only asks does not take it."""
        self.fold_lock = threading.Lock()
        """Held while it is folded; taken before ``lock``."""
        self._state = VolumeState.CLOSED

    @property
    def state(self) -> VolumeState:
        """What the volume is doing here."""
        return self._state

    def move(self, event: VolumeEvent) -> None:
        """Go to the state after ``event``."""
        with self.lock:
            self._state = next_state(self._state, event)

    def observe(self, state_of_runtime: object) -> bool:
        """Follow what the runtime noticed itself; return whether that was fencing."""
        with self.lock:
            if state_of_runtime == "fenced" and self._state in _MAY_BE_FENCED:
                self.move(VolumeEvent.FENCED)
                return True
            if state_of_runtime == "open" and self._state is VolumeState.FROZEN:
                self.move(VolumeEvent.THAW)  # the time for freezing was over
        return False


_MAY_BE_FENCED = frozenset({VolumeState.SERVING, VolumeState.FROZEN, VolumeState.CLOSING})
