"""A host as the owner of volumes: their records in the origin."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acstor import exception
from acstor.origin.base import Origin
from acstor.volumes import bells

if TYPE_CHECKING:
    from acstor.volumes.record import VolumeRecord
    from acstor.volumes.store import VolumeStore

LOG = logging.getLogger(__name__)

MANIFEST_BYTES_MAX = 4 << 30
"""Largest manifest that is read, bytes."""
_WANTED_BY = "wanted_by"
"""Entry of a record's metadata: the host whose guest waits for the volume in a live migration."""


@dataclasses.dataclass(frozen=True)
class Sealed:
    """Where the log of an owner before ends."""

    last: int | None
    """Last log object that counts; None: none does."""
    seal: int
    """Sequence number of the seal."""


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
        self._opened: Origin | None = None
        self._store: VolumeStore | None = None
        self._lock = threading.Lock()  # of both

    @property
    def log_origin(self) -> DeferredOrigin:
        """Where logs of volumes go."""
        return DeferredOrigin(self._origin)

    def _origin(self) -> Origin:
        with self._lock:
            return self._open()

    def _open(self) -> Origin:
        if self._opened is None:
            self._opened = self._open_origin()
        return self._opened

    def _records(self) -> "VolumeStore":
        from acstor.repository.repository import Repository
        from acstor.volumes.store import VolumeStore

        with self._lock:
            if self._store is None:
                self._store = VolumeStore(Repository.open(self._open()))
            return self._store

    def acquire(self, volume: str, seal: Seal) -> "VolumeRecord":
        """Own a volume in a new epoch; return its record, with nothing left to be sealed.

        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when this host may not attach it, or another one has it.
        """
        records = self._records()
        record = records.acquire(volume, self.host).after
        if record.unsealed is None:
            return record
        end = seal(volume, record.unsealed, record.next)
        last = record.next - 1 if end.last is None else end.last
        return records.record_takeover(
            volume, self.host, record.epoch, last=last, seal=end.seal
        ).after

    def is_owner(self, volume: str, epoch: int) -> bool:
        """Return whether this host owns a volume in an epoch and may write its log.

        :raises AcstorError: when the origin does not answer.
        """
        found = self._records().find(volume)
        return (
            found is not None
            and found.record.owner == self.host
            and found.record.epoch == epoch
            and found.record.unsealed is None
        )

    def pushed(self, volume: str, epoch: int, sequence: int) -> dict[str, object]:
        """Return how to find in the origin what is pushed up to a log object.

        :raises FencedError: when another host owns the volume by now.
        """
        record = self._records().get(volume).record
        if (record.owner, record.epoch) != (self.host, epoch):
            raise exception.FencedError(
                f"volume {volume} is not owned by {self.host} in epoch {epoch} any more"
            )
        state = record.pushed_disk(volume, sequence)
        return {
            "epoch": epoch,
            "sequence": sequence,
            "size_bytes": record.size_bytes,
            **state.to_fields(),
        }

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
            bells.ring(self._origin(), record.owner)
        except exception.AcstorError as error:
            # It looks by itself, later.
            LOG.info("the bell of host %s was not rung: %s", record.owner, error)

    def bell(self) -> str | None:
        """Return what changes whenever somebody waits for a volume of this host.

        :raises AcstorError: when the origin does not answer.
        """
        return bells.heard(self._origin(), self.host)

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
        from acstor.volumes.ownership import LogPosition

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


def limits_of(record: "VolumeRecord") -> tuple[int, int]:
    """Return a volume's limits as the control plane keeps them: requests and bytes per second."""
    return _limit(record.metadata.get("iops")), _limit(record.metadata.get("bytes_per_s"))


def _limit(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0
