"""The records of volumes and snapshots: the refs ``volumes/<uuid>`` and ``snapshots/<uuid>``.

A disk state is a manifest (none: an empty disk) over which log objects are replayed in the order
that the record gives. States are shared: a snapshot or a clone names the manifest and the log
objects of the volume that it was taken of, and nothing is copied. What keeps log objects alive is
:attr:`VolumeRecord.coverage`; RFD 8 says why nothing that is needed is ever collected.
"""

import dataclasses
import re
import secrets
from collections.abc import Mapping
from typing import Any

from acstor.repository.dedup_scope import check_scope
from acstor.repository.record_json import (
    check_digest,
    checked,
    encoded,
    list_of,
    load_fields,
)
from acstor.repository.volumes import log_range
from acstor.repository.volumes.consistency import ConsistencyLevel, parse_level
from acstor.repository.volumes.durability import Durability
from acstor.repository.volumes.log_range import LogRange

VOLUME_VERSION = 1
"""Version of volumes' records that name no member of the origin."""
ASSIGNED_VERSION = 2
"""Version of those that do: an older program, which would write in the home, refuses them."""
SNAPSHOT_VERSION = 1
"""Version of snapshots' records that this build writes; it reads this one only."""
SECTOR_SIZE = 512
SIZE_MAX = 1 << 62
NAME_LENGTH_MAX = 255
HOSTS_MAX = 256
SEALS_MAX = 1024
"""Seals that are kept; of more, the oldest are forgotten."""
PENDING_PACKS_MAX = 4096
METADATA_ENTRIES_MAX = 64
METADATA_KEY_LENGTH_MAX = 255
METADATA_VALUE_LENGTH_MAX = 1024

_NONCE = re.compile(r"[0-9a-f]{32}\Z")
_TOO_LONG = "fold the volume's logs: 'acstor volume fold' on its host"


def random_nonce() -> str:
    """Return what tells one state of a record from all others."""
    return secrets.token_hex(16)


def random_first_sequence() -> int:
    """Return where the sequence numbers of a new volume begin.

    Random, so that a volume that gets the id of a deleted one never gives a log object a name
    that was used before: a late deletion could otherwise hit it (RFD 5).
    """
    return (1 + secrets.randbits(46)) << 16


@dataclasses.dataclass(frozen=True, slots=True)
class DiskState:
    """One immutable content of a disk."""

    manifest: str | None = None
    """BLAKE3 of the manifest's bytes, hexadecimal; None: zeros."""
    logs: tuple[LogRange, ...] = ()
    """Log objects to replay over it, in this order."""

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"manifest": self.manifest, "logs": [one.to_fields() for one in self.logs]}

    def check(self) -> None:
        """Refuse what is malformed.

        :raises ValueError: saying what is.
        """
        check_digest(self.manifest, "manifest")
        if len(self.logs) > log_range.RANGES_MAX:
            raise ValueError(f"more than {log_range.RANGES_MAX} log ranges")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "DiskState":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        state = cls(fields.get("manifest"), log_range.parse_ranges(fields.get("logs")))
        state.check()
        return state


@dataclasses.dataclass(frozen=True, slots=True)
class Pending:
    """Objects that a volume will refer to next: kept alive while they are made or looked for."""

    disk: DiskState = dataclasses.field(default_factory=DiskState)
    packs: tuple[str, ...] = ()
    """Ids of packs that are being written, hexadecimal; named here before they exist."""

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.disk.to_fields(), "packs": list(self.packs)}

    @classmethod
    def from_fields(cls, fields: object) -> "Pending":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("pending is no JSON object")
        packs = fields.get("packs")
        if not isinstance(packs, list) or len(packs) > PENDING_PACKS_MAX:
            raise ValueError(f"pending packs are no list of at most {PENDING_PACKS_MAX}")
        for pack in packs:
            if pack is None:
                raise ValueError("a pending pack is null")
            check_digest(pack, "a pending pack")
        return cls(DiskState.from_fields(fields), tuple(packs))


@dataclasses.dataclass(frozen=True, slots=True)
class VolumeRecord:
    """Record of a volume. Changed by compare-and-swap only; states.py says by whom."""

    size_bytes: int
    """Of the disk; a multiple of 512. It never shrinks."""
    manifest: str | None = None
    """As in :class:`DiskState`."""
    logs: tuple[LogRange, ...] = ()
    """Closed ranges, as in :class:`DiskState`; what the present owner pushed since is not in it."""
    epoch: int = 0
    """Grows with every change of owner; 0: never owned."""
    next: int = 0
    """Sequence number of the first log object that is in no closed range; they never restart."""
    owner: str | None = None
    """Host that serves the volume and writes its log objects; None: nobody does."""
    unsealed: int | None = None
    """Epoch of the owner before, whose end is not known: its log objects from :attr:`next` on
    belong to the disk; whoever takes the volume over seals it before it writes anything. None:
    every epoch before is sealed, or the volume has no owner (its last epoch may be open)."""
    member: str | None = None
    """Member of the origin in which the log of :attr:`epoch` is, and in no other; None: the home,
    or an origin of one store. Written by the change that makes the epoch grow, and by no other
    (RFD 38, Invariant M)."""
    unsealed_member: str | None = None
    """The same of :attr:`unsealed`."""
    assigned: str | None = None
    """The same of the next epoch. It gives nobody a right to write there."""
    seals: tuple[tuple[int, int], ...] = ()
    """(epoch, sequence number) of the seals that stop owners of epochs before."""
    pending: Pending | None = None
    hosts: tuple[str, ...] = ()
    """Hosts that may become owner, sorted: those that Cinder attached the volume to."""
    is_standby_allowed: bool = False
    """True if a second host may be allowed, for a live migration."""
    durability: Durability = dataclasses.field(default_factory=Durability)
    content_end: tuple[int, int] | None = None
    """(epoch, sequence number) of the last log object when the last owner released the volume;
    None while it is owned, and after a takeover or a revert."""
    name: str = ""
    created_at: str = ""
    """UTC, ISO 8601; for people."""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Free fields of the control plane."""
    dedup_scope: str | None = None
    """Scope of the names that folds give to new chunks; None: they are plain digests. Absent from
    records without it; releases that do not know it keep it."""
    made_of: str | None = None
    """Manifest that the volume was made of: an image's, or another volume's; no fold of its own.
    None: of nothing, or by a release that did not write it. Absent from records without it;
    releases that do not know it keep it."""
    level: ConsistencyLevel = ConsistencyLevel.ADAPTIVE
    """Consistency over the members of the origin. Absent from records of the usual level; releases
    that do not know it keep it."""
    nonce: str = dataclasses.field(default_factory=lambda: random_nonce())
    """Different in every state, so that no two states of the ref have the same content."""
    unknown: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields that a newer release wrote; kept as they are."""

    @property
    def disk(self) -> DiskState:
        """The disk without what the present owner pushed since the last closed range."""
        return DiskState(self.manifest, self.logs)

    def pushed_disk(self, volume_id: str, sequence: int) -> DiskState:
        """Return the disk as it is after the log object ``sequence`` of the present epoch."""
        return DiskState(self.manifest, self.closed_until(volume_id, sequence))

    def closed_until(self, volume_id: str, sequence: int) -> tuple[LogRange, ...]:
        """Return the closed ranges and one up to ``sequence`` of the present epoch."""
        if sequence < self.next:
            return self.logs
        fresh = LogRange(volume_id, self.epoch, self.next, sequence, member=self.member)
        return log_range.appended(self.logs, fresh)

    def in_next_epoch(self) -> "VolumeRecord":
        """Return the record in a new epoch, which begins in the member that it is assigned to."""
        return dataclasses.replace(self, epoch=self.epoch + 1, member=self.assigned)

    def taken_by(self, owner: str) -> "VolumeRecord":
        """Return the record of which another host, or the same anew, has become the owner.

        The epoch that is not sealed stays the one that was written, in its member, also where a
        former owner has not begun its own (RFD 38, *Fencing*).
        """
        unsealed, unsealed_member = self.unsealed, self.unsealed_member
        if unsealed is None and self.epoch > 0:
            unsealed, unsealed_member = self.epoch, self.member
        return dataclasses.replace(
            self.in_next_epoch(),
            owner=owner,
            unsealed=unsealed,
            unsealed_member=unsealed_member,
            pending=None,
            content_end=None,
        )

    def coverage(self, volume_id: str) -> tuple[LogRange, ...]:
        """Return every log object that the volume needs, or that its owner may be writing."""
        last = log_range.SEQUENCE_MAX
        covered = [*self.logs, LogRange(volume_id, self.epoch, self.next, last)]
        if self.unsealed is not None:
            covered.append(LogRange(volume_id, self.unsealed, self.next, last))
        covered.extend(LogRange(volume_id, epoch, at, at) for epoch, at in self.seals)
        if self.pending is not None:
            covered.extend(self.pending.disk.logs)
        return tuple(covered)

    def encode(self) -> bytes:
        """Return the record as JSON.

        :raises ExhaustedError: when it is too long.
        """
        fields = {
            **self.unknown,
            "version": ASSIGNED_VERSION if self.names_members else VOLUME_VERSION,
            **{name: getattr(self, name) for name in _VOLUME_FIELDS},
            "logs": [one.to_fields() for one in self.logs],
            "pending": self.pending.to_fields() if self.pending else None,
            "durability": self.durability.to_fields(),
            "metadata": dict(self.metadata),
        }
        for name in ("dedup_scope", "made_of", *_MEMBER_FIELDS):
            if fields[name] is None:
                del fields[name]
        if self.level is ConsistencyLevel.ADAPTIVE:
            del fields["level"]
        return encoded(fields, _TOO_LONG)

    @property
    def names_members(self) -> bool:
        """True if an epoch of it is, or is to be, in another member than the home."""
        return self.written_members != {None}

    @property
    def written_members(self) -> frozenset[str | None]:
        """Members that it writes to, seals a log in or is to write to; None: the home."""
        return frozenset(getattr(self, name) for name in _MEMBER_FIELDS)

    @classmethod
    def parse(cls, content: bytes, volume_id: str) -> "VolumeRecord":
        """Read a record; unknown fields are kept.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed or too long.
        """
        what = f"the record of volume {volume_id}"
        fields = load_fields(content, what, VOLUME_VERSION, ASSIGNED_VERSION)
        return checked(what, lambda: cls._from_fields(fields))

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> "VolumeRecord":
        known: dict[str, Any] = {name: fields.get(name) for name in _VOLUME_FIELDS}
        pending = fields.get("pending")
        known.update(
            logs=log_range.parse_ranges(fields.get("logs")),
            pending=None if pending is None else Pending.from_fields(pending),
            durability=Durability.from_fields(fields.get("durability")),
            level=parse_level(fields.get("level", ConsistencyLevel.ADAPTIVE)),
            seals=tuple(_position(one, "a seal") for one in list_of(fields, "seals", SEALS_MAX)),
            hosts=tuple(list_of(fields, "hosts", HOSTS_MAX)),
            unknown={
                name: value
                for name, value in fields.items()
                if name not in _VOLUME_FIELDS and name != "version"
            },
        )
        if known["content_end"] is not None:
            known["content_end"] = _position(known["content_end"], "content_end")
        record = cls(**known)
        record.check()
        if record.names_members and fields["version"] != ASSIGNED_VERSION:
            # A program that knows no members has written it: where its epochs are is not known.
            raise ValueError(f"version {fields['version']} names members of the origin")
        return record

    def check(self) -> None:
        """Refuse what is malformed.

        :raises ValueError: saying what is.
        """
        check_size(self.size_bytes)
        self.disk.check()
        for name in _MEMBER_FIELDS:
            log_range.check_member(getattr(self, name))
        if self.unsealed is None and self.unsealed_member is not None:
            raise ValueError("there is a member of an epoch that is not there")
        log_range.check_epoch(log_range.integer(self.epoch, "epoch"))
        log_range.check_sequence(log_range.integer(self.next, "next"))
        if self.unsealed is not None:
            log_range.check_epoch(log_range.integer(self.unsealed, "unsealed"))
        if len(self.seals) > SEALS_MAX or len(self.hosts) > HOSTS_MAX:
            raise ValueError("too many seals or hosts")
        for host in (*self.hosts, *([] if self.owner is None else [self.owner])):
            check_host(host)
        if list(self.hosts) != sorted(set(self.hosts)):
            raise ValueError("hosts are not sorted, or one is there twice")
        if not isinstance(self.is_standby_allowed, bool):
            raise ValueError("is_standby_allowed is no truth value")
        check_text(self.name, "name")
        check_text(self.created_at, "created_at")
        check_metadata(self.metadata)
        check_scope(self.dedup_scope)
        check_digest(self.made_of, "made_of")
        if not isinstance(self.nonce, str) or not _NONCE.match(self.nonce):
            raise ValueError("nonce is not 32 hexadecimal digits")


_MEMBER_FIELDS = ("member", "unsealed_member", "assigned")
_VOLUME_FIELDS = tuple(
    field.name for field in dataclasses.fields(VolumeRecord) if field.name != "unknown"
)


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """Record of a snapshot; it never changes."""

    volume: str
    """The volume that it was taken of; it may be deleted before the snapshot."""
    size_bytes: int
    manifest: str | None
    """As in :class:`DiskState`."""
    logs: tuple[LogRange, ...] = ()
    created_at: str = ""
    """UTC, ISO 8601."""
    group: str | None = None
    """Id of the group snapshot that it is part of."""
    name: str = ""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nonce: str = dataclasses.field(default_factory=lambda: random_nonce())

    @property
    def disk(self) -> DiskState:
        """The disk."""
        return DiskState(self.manifest, self.logs)

    def encode(self) -> bytes:
        """Return the record as JSON.

        :raises ExhaustedError: when it is too long.
        """
        fields = {
            "version": SNAPSHOT_VERSION,
            **{name: getattr(self, name) for name in _SNAPSHOT_FIELDS},
            "logs": [one.to_fields() for one in self.logs],
            "metadata": dict(self.metadata),
        }
        return encoded(fields, _TOO_LONG)

    @classmethod
    def parse(cls, content: bytes, snapshot_id: str) -> "SnapshotRecord":
        """Read a record; unknown fields are ignored.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed or too long.
        """
        what = f"the record of snapshot {snapshot_id}"
        fields = load_fields(content, what, SNAPSHOT_VERSION)
        return checked(what, lambda: cls._from_fields(fields))

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> "SnapshotRecord":
        known: dict[str, Any] = {name: fields.get(name) for name in _SNAPSHOT_FIELDS}
        known["logs"] = log_range.parse_ranges(fields.get("logs"))
        record = cls(**known)
        record.check()
        return record

    def check(self) -> None:
        """Refuse what is malformed.

        :raises ValueError: saying what is.
        """
        LogRange(self.volume, 0, 0, 0)
        check_size(self.size_bytes)
        self.disk.check()
        for text, what in (
            (self.name, "name"),
            (self.created_at, "created_at"),
            ("" if self.group is None else self.group, "group"),
        ):
            check_text(text, what)
        check_metadata(self.metadata)
        if not isinstance(self.nonce, str) or not _NONCE.match(self.nonce):
            raise ValueError("nonce is not 32 hexadecimal digits")


_SNAPSHOT_FIELDS = tuple(field.name for field in dataclasses.fields(SnapshotRecord))


def check_size(size_bytes: int) -> None:
    """Refuse what is no size of a disk.

    :raises ValueError: unless it is a positive multiple of 512.
    """
    size_bytes = log_range.integer(size_bytes, "size_bytes")
    if not 0 < size_bytes <= SIZE_MAX or size_bytes % SECTOR_SIZE:
        raise ValueError(f"size_bytes {size_bytes} is no positive multiple of {SECTOR_SIZE}")


def check_host(host: object) -> None:
    """Refuse what is no name of a host.

    :raises ValueError: unless it is printable text of 1 to 255 characters.
    """
    check_text(host, "host")
    if not host:
        raise ValueError("a host has no name")


def check_text(text: object, what: str) -> None:
    """Refuse what is no short text.

    :raises ValueError: unless it is printable text of at most 255 characters.
    """
    if not isinstance(text, str) or len(text) > NAME_LENGTH_MAX or not text.isprintable():
        raise ValueError(f"{what} is no text of at most {NAME_LENGTH_MAX} characters")


def check_metadata(metadata: object) -> None:
    """Refuse what is no metadata.

    :raises ValueError: unless it is a mapping of at most 64 short texts to texts.
    """
    if not isinstance(metadata, Mapping) or len(metadata) > METADATA_ENTRIES_MAX:
        raise ValueError(f"metadata is no object of at most {METADATA_ENTRIES_MAX} entries")
    for key, value in metadata.items():
        if not isinstance(key, str) or not 0 < len(key) <= METADATA_KEY_LENGTH_MAX:
            raise ValueError("a key of the metadata is empty or too long")
        if not isinstance(value, str) or len(value) > METADATA_VALUE_LENGTH_MAX:
            raise ValueError(f"metadata {key!r} is no text, or too long")


def _position(value: object, what: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{what} is no pair of epoch and sequence number")
    epoch, sequence = (log_range.integer(one, what) for one in value)
    log_range.check_epoch(epoch)
    log_range.check_sequence(sequence)
    return epoch, sequence
