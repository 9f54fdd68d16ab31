"""The origin of a host's volumes, opened when somebody first needs it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from acstor.origin.base import Origin

if TYPE_CHECKING:
    from acstor.repository.repository import Repository
    from acstor.repository.volumes.store import VolumeStore


class DeferredOrigin:
    """An origin that is opened when it is first called, and again until that succeeds.

    For logs of volumes, which must be opened after a restart whether the origin is there or not.

    :param origin: returns it; raises AcstorError while it cannot be opened.
    """

    def __init__(self, origin: Callable[[], Origin]) -> None:
        self._origin = origin

    def put_if_absent(self, key: str, buffers: Sequence[bytes]) -> bool:
        """See :meth:`acstor.origin.base.Origin.put_if_absent`."""
        return self._origin().put_if_absent(key, buffers)

    def get(self, key: str, size_max: int) -> bytes:
        """See :meth:`acstor.origin.base.Origin.get`."""
        return self._origin().get(key, size_max)

    def list(self, prefix: str = "") -> Iterator[str]:
        """See :meth:`acstor.origin.base.Origin.list`."""
        return self._origin().list(prefix)


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

    @property
    def log_origin(self) -> DeferredOrigin:
        """The origin as logs of volumes use it."""
        return DeferredOrigin(self.origin)

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
