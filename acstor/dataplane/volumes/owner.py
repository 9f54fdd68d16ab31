"""A host as the owner of volumes: their records in the origin."""

import contextlib
import dataclasses
import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acstor import exception
from acstor.control.protocol import VOLUME_RATE_MAX
from acstor.dataplane.volumes.kept_clean import KeptClean
from acstor.origin.base import Origin
from acstor.repository.volumes import doorbells, heads

if TYPE_CHECKING:
    from acstor.repository.repository import Repository
    from acstor.repository.volumes.record import VolumeRecord
    from acstor.repository.volumes.store import VolumeStore

LOG = logging.getLogger(__name__)

_LIMIT_DIGITS_MAX = 15
"""Most digits of a limit in a record's metadata."""
MANIFEST_BYTES_MAX = 4 << 30
"""Largest manifest that is read, bytes."""
TAKEN_OVER_FROM = "taken_over_from"
"""Entry of a record's metadata: the owner that was replaced last without having released."""
TAKEN_OVER_AT = "taken_over_at"
TAKEN_OVER_CONTENT_AT = "taken_over_content_at"
"""The same: when the last of what it had pushed was sent; UTC, ISO 8601."""
_WANTED_BY = "wanted_by"
"""Entry of a record's metadata: the host whose guest waits for the volume in a live migration."""


@dataclasses.dataclass(frozen=True)
class Sealed:
    """Where the log of an owner before ends."""

    last: int | None
    """Last log object that counts; None: none does."""
    seal: int
    """Sequence number of the seal."""


@dataclasses.dataclass(frozen=True)
class TakeOver:
    """A volume that its owner had not given back: what that one did not push is no part of it."""

    owner: str
    """The owner before; this host itself where its local log is gone."""
    content_at: float | None
    """When the last of what it pushed was sent, seconds since 1970; None: not known."""


@dataclasses.dataclass(frozen=True)
class Acquired:
    """A volume that this host owns in a new epoch."""

    record: "VolumeRecord"
    is_closed_log_current: bool = False
    """Whether nobody owned it since this host closed it."""
    take_over: TakeOver | None = None


@dataclasses.dataclass(frozen=True)
class Look:
    """What a volume's record said of this host."""

    epoch: int
    """The one that was asked about."""
    record: "VolumeRecord | None"
    """None: this host does not own the volume in that epoch."""


Seal = Callable[[str, int, int], Sealed]
"""Seals a volume's epoch from a sequence number on."""


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


class VolumeOwner:
    """A host as the owner of volumes.

    The origin and what lies above it are opened at the first use: a data plane without volumes
    starts without them.

    :param host: its name in the records.
    :param open_origin: may raise AcstorError; asked again then.
    """

    def __init__(self, host: str, open_origin: Callable[[], Origin]) -> None:
        self.host = host
        self._open_origin = open_origin
        self._opened: Repository | None = None
        self._store: VolumeStore | None = None
        self._lock = threading.Lock()  # of both

    @property
    def log_origin(self) -> DeferredOrigin:
        """Where logs of volumes go."""
        return DeferredOrigin(self._origin)

    def _origin(self) -> Origin:
        with self._lock:
            return self._open().origin

    def _open(self) -> "Repository":
        from acstor.repository.opening import open_repository

        # What is pushed is removed here: never to an empty directory, where nothing is mounted.
        if self._opened is None:
            self._opened = open_repository(self._open_origin)
        return self._opened

    def _records(self) -> "VolumeStore":
        from acstor.repository.volumes.store import VolumeStore

        with self._lock:
            if self._store is None:
                self._store = VolumeStore(self._open())
            return self._store

    def acquire(
        self,
        volume: str,
        seal: Seal,
        expected: int | None = None,
        forget_closed: Callable[[str], object] = lambda volume: None,
    ) -> Acquired:
        """Own a volume in a new epoch, with nothing left to be sealed.

        :param expected: the epoch in which the log that this host closed is the volume's, see
            :meth:`epoch_to_take`; None: in none.
        :param forget_closed: makes that log void for good, before the record tells less of it.
        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when this host may not attach it, or another one has it.
        """
        records = self._records()
        change = records.acquire(volume, self.host)
        record = change.after
        is_current = record.epoch == expected
        if record.unsealed is None:
            return Acquired(record, is_current)
        end = seal(volume, record.unsealed, record.next)
        if is_current and end.last is not None:
            # Somebody who did not know that the volume was given back has stored what is not here.
            forget_closed(volume)
            is_current = False
        last = record.next - 1 if end.last is None else end.last
        taken = records.record_takeover(volume, self.host, record.epoch, last=last, seal=end.seal)
        owner = change.before.owner
        if is_current or owner is None:
            return Acquired(taken.after, is_current)
        return Acquired(taken.after, take_over=self._take_over(owner, taken.after))

    def _take_over(self, owner: str, record: "VolumeRecord") -> TakeOver:
        from acstor.repository import layout
        from acstor.repository.volumes.log_object import LOG_OBJECT_SIZE_MAX, log_created_at

        content_at = None
        if record.logs:
            last = record.logs[-1]
            key = layout.log_key(last.volume, last.epoch, last.last)
            # Only for people: nothing else depends on it.
            with contextlib.suppress(exception.AcstorError):
                content_at = log_created_at(self._origin().get(key, LOG_OBJECT_SIZE_MAX))
        return TakeOver(owner, content_at)

    def note_take_over(self, volume: str, take_over: TakeOver) -> None:
        """Keep in a volume's record, for people, that its owner was replaced."""
        at = take_over.content_at
        metadata = {
            TAKEN_OVER_FROM: take_over.owner,
            TAKEN_OVER_AT: _iso(time.time()),
            TAKEN_OVER_CONTENT_AT: None if at is None else _iso(at),
        }
        self._records().describe(volume, metadata=metadata)

    def epoch_to_take(self, closed: KeptClean) -> int | None:
        """Return the epoch in which this host goes on with a log that it closed; None: in none.

        To be kept with the log before :meth:`acquire`, which may take effect without an answer.

        :raises NotFoundError: when there is no such volume.
        """
        record = self.record(closed.volume)
        return record.epoch + 1 if self.is_closed_last(record, closed) else None

    def is_closed_last(self, record: "VolumeRecord", closed: KeptClean) -> bool:
        """Return whether nobody wrote to a volume since this host closed its log."""
        if closed.opened is None:
            return False
        epoch = closed.opened.epoch
        if record.owner == self.host:
            # Owned by a call that failed or whose answer was lost: the log would be gone else.
            if closed.taking is None:
                # By a release that kept no note of it. An epoch stays the unsealed one until
                # another owner begins to write.
                return record.unsealed == epoch
            # Each change of the owner makes the epoch grow, and nobody else had it at the note.
            return record.epoch in (closed.taking - 1, closed.taking)
        end = record.content_end
        # A revert makes the epoch grow and has no end.
        return record.owner is None and end is not None and end[0] == record.epoch == epoch

    def look(self, volume: str, epoch: int) -> Look:
        """Return whether this host owns a volume in an epoch and may write its log.

        :raises AcstorError: when the origin does not answer.
        """
        found = self._records().find(volume)
        is_owner = (
            found is not None
            and found.record.owner == self.host
            and found.record.epoch == epoch
            and found.record.unsealed is None
        )
        return Look(epoch, found.record if found is not None and is_owner else None)

    def owned_record(self, volume: str, epoch: int) -> "VolumeRecord":
        """Return the record of a volume that this host owns in an epoch.

        :raises FencedError: when another host owns the volume by now.
        """
        record = self._records().get(volume).record
        if (record.owner, record.epoch) != (self.host, epoch):
            raise exception.FencedError(
                f"volume {volume} is not owned by {self.host} in epoch {epoch} any more"
            )
        return record

    def record(self, volume: str) -> "VolumeRecord":
        """Return a volume's record.

        :raises NotFoundError: when there is no such volume.
        """
        return self._records().get(volume).record

    def may_follow(self, record: "VolumeRecord") -> bool:
        """Return whether this host is the destination of a migration that is under way."""
        return record.is_standby_allowed and self.host in record.hosts

    def may_take(self, record: "VolumeRecord", *, is_patient: bool) -> bool:
        """Return whether a standby may try to become the owner.

        :param is_patient: whether it waits for the other host, where that asked first.
        """
        if record.owner is None:
            return not is_patient or self.wanted_by(record) is None
        return record.owner == self.host or record.owner not in record.hosts

    def ask_for(self, volume: str, record: "VolumeRecord") -> None:
        """Ask the owner to hand a volume over, unless somebody else waits for that already.

        :param record: as it was a moment ago.
        """
        # What the owner itself asked for is fulfilled.
        if record.owner is not None and record.metadata.get(_WANTED_BY) in (None, record.owner):
            self._records().describe(volume, metadata={_WANTED_BY: self.host})
            self.ring(record)

    def ring(self, record: "VolumeRecord") -> None:
        """Have the owner of a volume look at its record now."""
        if record.owner in (None, self.host):
            return
        try:
            doorbells.ring(self._origin(), record.owner)
        except exception.AcstorError as error:
            # It looks by itself, later.
            LOG.info("the doorbell of host %s was not rung: %s", record.owner, error)

    def ask_for_head(self, volume: str) -> str:
        """Ask the owner of a volume for its first sectors; return the question's nonce.

        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when no other host owns it.
        """
        record = self.record(volume)
        if record.owner in (None, self.host):
            raise exception.ConflictError(f"no other host owns volume {volume}")
        nonce = heads.ask(self._origin(), volume)
        self.ring(record)
        return nonce

    def head_asked(self, volume: str) -> heads.Head | None:
        """Return the question for a volume's first sectors, or the answer to it.

        :raises UnavailableError: when the origin does not answer.
        """
        return heads.asked(self._origin(), volume)

    def answer_head(self, volume: str, head: heads.Head) -> None:
        """Answer a question for a volume's first sectors.

        :param head: its nonce, and what this host read since, in the epoch that it names.
        """
        heads.answer(self._origin(), volume, head)

    def current_head(self, volume: str, head: heads.Head) -> bytes | None:
        """Return the content of an answer; None where another host may have written since.

        :raises UnavailableError: when the origin does not answer.
        """
        record = self.record(volume)
        is_owner = (record.owner, record.epoch) == (head.owner, head.epoch)
        return head.content if is_owner and record.unsealed is None else None

    def forget_head(self, volume: str) -> None:
        """Remove a question for a volume's first sectors, and its answer."""
        heads.remove(self._origin(), volume)

    def doorbell(self) -> str | None:
        """Return what changes whenever somebody waits for a volume of this host.

        :raises AcstorError: when the origin does not answer.
        """
        return doorbells.heard(self._origin(), self.host)

    def wanted_by(self, record: "VolumeRecord") -> str | None:
        """Return the other host that asks for a volume, if it may."""
        host = record.metadata.get(_WANTED_BY)
        if host in (None, self.host) or host not in record.hosts:
            return None
        return host if record.is_standby_allowed else None

    def release(self, volume: str, epoch: int, sequence: int | None) -> None:
        """Give a volume back, everything up to a log object being pushed.

        :raises FencedError: when another host owns the volume by now.
        """
        self._records().release(volume, self.host, epoch, sequence)

    def reaffirm(self, volume: str, epoch: int) -> None:
        """Stay the owner, whatever becomes of a release that was tried.

        :raises FencedError: when it took effect, or another host owns the volume by now.
        """
        self._records().reaffirm(volume, self.host, epoch)

    def announce_fold(
        self, volume: str, epoch: int, packs: Sequence[str], manifest: str | None
    ) -> None:
        """Name what a fold is about to store, all of it so far.

        :raises FencedError: when another host owns the volume by now.
        """
        self._records().announce_fold(volume, self.host, epoch, packs=packs, manifest=manifest)

    def install_fold(
        self, volume: str, epoch: int, manifest: str, folded: Mapping[str, Any]
    ) -> "VolumeRecord":
        """Replace the log up to a log object by an announced and stored manifest.

        :param folded: ``volume``, ``epoch`` and ``sequence`` of the log object.
        :raises FencedError: when another host owns the volume by now.
        """
        from acstor.repository.volumes.ownership import LogPosition

        return (
            self._records()
            .install_fold(volume, self.host, epoch, manifest, LogPosition(**folded))
            .after
        )

    def manifest(self, digest: str | None) -> bytes | None:
        """Return a manifest of the origin; None for none.

        :raises NotFoundError: when the origin does not hold it.
        """
        from acstor.repository import layout

        if digest is None:
            return None
        return self._origin().get(layout.manifest_key(digest), MANIFEST_BYTES_MAX)


def _iso(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="seconds")


def limits_of(record: "VolumeRecord") -> tuple[int, int]:
    """Return a volume's limits as the control plane keeps them: requests and bytes per second."""
    return _limit(record.metadata.get("iops")), _limit(record.metadata.get("bytes_per_s"))


def _limit(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        return 0
    # What no limit can be limits nothing, as for the driver: it is no reason not to be served.
    limit = int(text[:_LIMIT_DIGITS_MAX])
    return limit if len(text) <= _LIMIT_DIGITS_MAX and limit <= VOLUME_RATE_MAX else 0
