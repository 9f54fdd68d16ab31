"""The volumes that this host knows, each with its state and its locks."""

import contextlib
import threading
from collections.abc import Iterator

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.local_volume import LocalVolume

_S = LocalVolumeState


class VolumeTable:
    """The volumes that this host knows.

    Locks are taken in this order; whoever holds one waits for none that stands before it:

    1. the turn of the host's folds (:class:`.folds.turns.FoldTurns`);
    2. :attr:`.LocalVolume.fold_lock`: the volume is folded, or is not to be;
    3. :attr:`.LocalVolume.lock`: the volume is changed; the thread that has it may take it again;
    4. the lock of this table, held for its dictionary alone;
    5. :attr:`.LocalVolume.unwanted_lock`.

    A mending that holds the third tries for the second and goes without it. The runtime takes its
    own below all of them: ``images`` before ``bases``.

    :param host: name of this host, for people.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self._volumes: dict[str, LocalVolume] = {}
        self._lock = threading.Lock()  # of _volumes

    # One volume

    def find(self, volume: str) -> LocalVolume | None:
        """Return a volume, None where nothing is known of it."""
        return self._volumes.get(volume)

    def find_or_add(self, volume: str) -> LocalVolume:
        """Return a volume; one that is not known is closed."""
        with self._lock:
            return self._volumes.setdefault(volume, LocalVolume(volume))

    def add(self, local: LocalVolume) -> None:
        """Know a volume again that was removed; its lock is held."""
        with self._lock:
            self._volumes[local.volume] = local

    def remove(self, volume: str) -> None:
        """Know a volume no more; its lock is held."""
        with self._lock:
            self._volumes.pop(volume, None)

    @contextlib.contextmanager
    def changing(self, volume: str) -> Iterator[LocalVolume]:
        """Lock a volume, known or not, that is the present one of that id."""
        while True:
            local = self.find_or_add(volume)
            with local.lock:
                if self._volumes.get(volume) is local:
                    yield local
                    return

    def known(self, volume: str) -> LocalVolume:
        """Return a volume that is not closed.

        :raises NotFoundError: when it is not open here.
        """
        local = self._volumes.get(volume)
        if local is None or local.state is _S.CLOSED:
            raise exception.NotFoundError(
                f"volume {volume} is not open on {self.host}",
                hint="'acstor volume show' tells where it is open",
            )
        return local

    def in_runtime(self, volume: str) -> LocalVolume:
        """Return a volume that the runtime has open.

        :raises NotFoundError: when it is not open here.
        :raises UnavailableError: when it is being opened.
        """
        local = self.known(volume)
        if not local.is_in_runtime:
            raise exception.UnavailableError(
                f"volume {volume} is being opened: {local.error or 'try again in a moment'}"
            )
        return local

    def owned(self, volume: str) -> LocalVolume:
        """Return a volume that the runtime has open, and of which this host is no standby.

        :raises NotFoundError: when it is not open here.
        :raises UnavailableError: when it is being opened.
        :raises FencedError: when this host is its standby.
        """
        local = self.in_runtime(volume)
        if local.state is _S.STANDBY:
            raise exception.FencedError(
                f"volume {volume} is not owned by {self.host}, which is its standby",
                hint="ask the owner: 'acstor volume show' tells which host that is",
            )
        return local

    # All of them

    def all(self) -> list[LocalVolume]:
        """Return the volumes as they are known at this moment."""
        with self._lock:
            return list(self._volumes.values())

    def in_state(self, *states: LocalVolumeState) -> list[LocalVolume]:
        """Return the volumes that are in one of some states."""
        return [local for local in self.all() if local.state in states]

    def unsettled(self) -> tuple[list[str], list[str]]:
        """Return the volumes to resume, and those that were resumed without knowing the owner."""
        volumes = self.all()
        to_resume = [local.volume for local in volumes if local.state is _S.OPENING]
        return to_resume, [local.volume for local in volumes if local.is_unchecked]

    def served(self) -> list[str]:
        """Return the volumes that this host owns and serves."""
        return [local.volume for local in self.in_state(_S.SERVING)]

    def moving(self) -> list[str]:
        """Return the volumes served here that another host may have as a standby."""
        return [local.volume for local in self.in_state(_S.SERVING) if local.is_movable]

    def has_standby(self) -> bool:
        """Return whether this host is the standby of a volume."""
        return bool(self.in_state(_S.STANDBY))
