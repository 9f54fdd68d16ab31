"""The origin of a host's volumes, opened when somebody first needs it."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from acstor.dataplane.volumes.runtime import LogOrigin
from acstor.origin.base import Origin

if TYPE_CHECKING:
    from acstor.repository.repository import Repository
    from acstor.repository.volumes.store import VolumeStore


class OriginAccess:
    """The origin and the records of volumes in it.

    Both are opened at the first use: a data plane without volumes starts without them.

    :param open_origin: may raise AcstorError; asked again then.
    """

    def __init__(self, open_origin: Callable[[], Origin]) -> None:
        self._open_origin = open_origin
        self._opened: Repository | None = None
        self._store: VolumeStore | None = None
        self._lock = threading.Lock()  # of both

    def log_of(
        self,
        volume: str,
        epoch: int,
        member: str | None,
        logs: Iterable[Mapping[str, Any]] = (),
    ) -> LogOrigin:
        """Return the log of an epoch, which is opened whether the origin is there or not.

        :param member: of the origin, in which the epoch is; None: the home.
        :param logs: closed ranges that are read through it, as in the volume's record.
        """
        from acstor.repository.volumes.epoch_log import EpochLog
        from acstor.repository.volumes.log_range import LogRange

        ranges = map(LogRange.from_fields, logs)
        return EpochLog(self.origin, volume, epoch, member, ranges)

    def origin(self) -> Origin:
        """Return the origin.

        :raises AcstorError: when it cannot be opened.
        """
        with self._lock:
            return self._open().origin

    def records(self) -> "VolumeStore":
        """Return the records of volumes.

        :raises AcstorError: when the origin cannot be opened.
        """
        from acstor.repository.volumes.store import VolumeStore

        with self._lock:
            if self._store is None:
                self._store = VolumeStore(self._open())
            return self._store

    def _open(self) -> "Repository":
        from acstor.repository.opening import open_repository

        # What is pushed is removed here: never to an empty directory, where nothing is mounted.
        if self._opened is None:
            self._opened = open_repository(self._open_origin)
        return self._opened
