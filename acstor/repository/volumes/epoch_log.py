"""Logs of volumes as who owns, seals or replays them reads and writes them (RFD 38, *Epochs*).

A slot of an epoch is a decision about who came first. It is made in the epoch's member, and nowhere
else: its log is listed, walked, written and sealed there, and if that member cannot be asked the
answer is *unavailable*. Log objects of closed ranges are the same wherever they are; they are read
by their keys from any member, the one that they were written in first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from acstor import exception, native
from acstor.origin.base import Buffer, ObjectStore
from acstor.repository import layout
from acstor.repository.volumes.log_range import LogRange


class ClosedLogs:
    """Log objects of closed ranges, by key.

    :param origin: returns the origin; may raise AcstorError, and is asked at each call.
    :param ranges: say where to look first.
    """

    def __init__(self, origin: Callable[[], ObjectStore], ranges: Iterable[LogRange]) -> None:
        self._origin = origin
        self._members = {one.folder: one.member for one in ranges}

    def get(self, key: str, size_max: int) -> bytes:
        """Return a log object.

        :raises NotFoundError: when no member has it.
        :raises UnavailableError: when one that may have it cannot be asked, or is not open here.
        """
        origin = self._origin()
        member = self._members.get(_folder_of(key))
        try:
            return origin.near_member(member).get(key, size_max)
        except exception.NotFoundError:
            _opened(origin, member, key)
            raise

    def put_if_absent(self, key: str, buffers: Sequence[Buffer]) -> bool:
        """Store nothing."""
        raise exception.InternalError(f"{key} is of a log that is only read")

    def list(self, prefix: str = "") -> Iterator[str]:
        """List nothing: the keys are known."""
        raise exception.InternalError(f"{prefix} is of a log that is only read")


class EpochLog(ClosedLogs):
    """Log of one epoch, and closed ranges below it.

    :param origin: as of :class:`ClosedLogs`.
    :param member: of the epoch; None: the home, or an origin of one store.
    :param ranges: closed ranges that are read through it, too.
    """

    def __init__(
        self,
        origin: Callable[[], ObjectStore],
        volume: str,
        epoch: int,
        member: str | None,
        ranges: Iterable[LogRange] = (),
    ) -> None:
        super().__init__(origin, ranges)
        self._folder = layout.log_folder(volume, epoch)
        self._member = member
        self._opened: ObjectStore | None = None

    def put_if_absent(self, key: str, buffers: Sequence[Buffer]) -> bool:
        """Store an object of the epoch in its member, and what a fold makes where that belongs.

        :raises UnavailableError: when that cannot be asked, or is not open here.
        """
        if not key.startswith(layout.VOLUME_LOG_PREFIX):
            return self._origin().put_if_absent(key, buffers)
        self._require_own(_folder_of(key))
        return self._store().put_if_absent(key, buffers)

    def get(self, key: str, size_max: int) -> bytes:
        """Return an object: of the epoch as its member has it, of others from any that has it."""
        if _folder_of(key) == self._folder:
            return self._store().get(key, size_max)
        return super().get(key, size_max)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys of the epoch that are in its member, or those of another folder."""
        if prefix and not prefix.startswith(layout.VOLUME_LOG_PREFIX):
            return self._origin().list(prefix)
        self._require_own(prefix)
        return self._store().list(prefix)

    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = _opened(self._origin(), self._member, self._folder)
        return self._opened

    def _require_own(self, folder: str) -> None:
        if folder != self._folder:
            raise exception.InternalError(f"{folder} is not the epoch {self._folder}")


def sealer_of(
    origin: ObjectStore,
) -> Callable[[str, int, int, str | None], tuple[int | None, int]]:
    """Return what seals epochs in their members, as data planes do; see :data:`.settling.Seal`."""

    def seal(volume: str, epoch: int, first: int, member: str | None) -> tuple[int | None, int]:
        log = EpochLog(lambda: origin, volume, epoch, member)
        with native.map_errors(f"sealing epoch {epoch} of volume {volume}"):
            end = native.seal_volume_log(volume, epoch, first, log)
        if end["seal"] is None:
            raise exception.InternalError(f"epoch {epoch} of volume {volume} has no seal")
        return end["last"], end["seal"]

    return seal


def _folder_of(key: str) -> str:
    return key.rpartition("/")[0] + "/"


def _opened(origin: ObjectStore, member: str | None, what: str) -> ObjectStore:
    """Return the store of a member; a log in one that is not open here is not taken for short.

    :raises UnavailableError: to be tried again, once the configuration names it.
    """
    try:
        return origin.of_member(member)
    except exception.UnsupportedError as error:
        raise exception.UnavailableError(f"{what}: {error.message}", hint=error.hint) from error
