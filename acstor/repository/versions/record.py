"""The record of a version: the ref ``versions/<2>/<uuid>``.

A version is one moment of one disk. Its content is a disk state like a volume's: a manifest, mostly
a delta over the manifest of its parent or of its base image, and over that log objects where it is
of a volume. UEFI variables and the state of a virtual TPM, which are not on the disk, are small
disks with manifests of their own, so that they are kept, verified, copied and collected as others.
"""

import dataclasses
import datetime
import enum
import re
from collections.abc import Mapping
from typing import Any

from acstor.repository import layout
from acstor.repository.dedup_scope import check_scope
from acstor.repository.record_json import (
    check_digest,
    checked,
    encoded,
    list_of,
    load_fields,
)
from acstor.repository.versions.locks import Lock, parse_time, time_text
from acstor.repository.versions.states import RESTORABLE, VersionState
from acstor.repository.volumes import record as volume_records
from acstor.repository.volumes.log_range import RANGES_MAX, LogRange, integer, parse_ranges
from acstor.repository.volumes.record import (
    PENDING_PACKS_MAX,
    DiskState,
    Pending,
    check_host,
    check_metadata,
    check_size,
    check_text,
)

RECORD_VERSION = 1
"""Version of versions' records that this build writes; it reads this one only."""
PACKS_MAX = 4096
"""Most packs that a version names as its own."""
USES_MAX = 1024
"""Most uses of a version at one time."""
GROUP_SIZE_MAX = 256
"""Most disks of one moment."""

_NONCE = re.compile(r"[0-9a-f]{32}\Z")
_USE = re.compile(r"[a-z]{1,20}/[A-Za-z0-9_.-]{1,100}\Z")
_NO_OFFSET = datetime.timedelta()
_TOO_LONG = "take fewer labels, or fold the volume before the next version"


class DiskKind(enum.StrEnum):
    """Kind of a disk that has versions."""

    INSTANCE = "instance"
    """A disk of an instance on its host, by the name of its device."""
    VOLUME = "volume"
    """A volume."""


class Trigger(enum.StrEnum):
    """Cause of a version."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    SHUTDOWN = "shutdown"
    RESIZE = "resize"
    REBUILD = "rebuild"
    RESTORE = "restore"
    """The disk's content before a version was put back in place."""
    DELETE = "delete"
    QUOTA = "quota"
    """The host had no more room for the disk's changes (ACStor §3.3.1)."""
    SNAPSHOT = "snapshot"
    """Cinder took a snapshot."""


class Consistency(enum.StrEnum):
    """Consistency of a version's content."""

    CRASH = "crash"
    """As after a power failure."""
    FS = "fs"
    """File systems were frozen, or unmounted."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class DiskName:
    """Name of a disk."""

    kind: DiskKind
    owner: str
    """UUID of the instance or volume."""
    device: str = ""
    """Name of the device in the instance, for example ``vda``; empty of a volume."""

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"kind": self.kind.value, "owner": self.owner, "device": self.device}

    @classmethod
    def from_fields(cls, fields: object) -> "DiskName":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("disk is no JSON object")
        name = cls(
            DiskKind(str(fields.get("kind"))), fields.get("owner", ""), fields.get("device", "")
        )
        name.check()
        return name

    def check(self) -> None:
        """Refuse what is malformed.

        :raises ValueError: saying what is.
        """
        _check_uuid(self.owner, "owner of the disk")
        check_text(self.device, "device")
        if bool(self.device) != (self.kind is DiskKind.INSTANCE):
            raise ValueError("a disk of an instance has a device, a volume has none")


@dataclasses.dataclass(frozen=True, slots=True)
class DeltaCounts:
    """Counts of an incremental delta when it was committed."""

    changed_chunks: int = 0
    """Chunks that were unlike the parent's."""
    stored_chunks: int = 0
    """Chunks with content that no pack in reach had."""
    reappeared_chunks: int = 0
    """Chunks unlike the parent's that a version before it, or the base, had: the duplicates of
    non-successive versions, which CloudVS stores twice (§3.2)."""
    stored_bytes: int = 0
    """Bytes that storing took, chunks as they are stored."""
    shared_bytes: int = 0
    """Stored bytes of all other chunks of the delta, which others have."""

    def to_fields(self) -> dict[str, int]:
        """Return the JSON form."""
        return dataclasses.asdict(self)

    @classmethod
    def from_fields(cls, fields: object) -> "DeltaCounts":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("delta is no JSON object")
        names = [field.name for field in dataclasses.fields(cls)]
        counts = [integer(fields.get(name), name) for name in names]
        if min(counts) < 0:
            raise ValueError("a count of the delta is negative")
        return cls(*counts)


@dataclasses.dataclass(frozen=True, slots=True)
class VersionRecord:
    """Record of a version. Changed by compare-and-swap only; states.py says by whom."""

    state: VersionState
    disk: DiskName
    size_bytes: int
    """Of the disk; a multiple of 512."""
    project: str
    """Project that owns it."""
    created_at: datetime.datetime
    """Moment whose content it has, in UTC."""
    name: str = ""
    trigger: Trigger = Trigger.MANUAL
    consistency: Consistency = Consistency.CRASH
    parent: str | None = None
    """Version that it was compared with: the one before of the same disk."""
    base_image: str | None = None
    """Image that the disk was made of."""
    manifest: str | None = None
    """As in :class:`.DiskState`; None while it is captured, and of a disk of zeros."""
    logs: tuple[LogRange, ...] = ()
    """Log objects to replay over it, in this order; of volumes only."""
    packs: tuple[str, ...] = ()
    """Packs that were stored for this version, where alpha finds its own chunks."""
    nvram: str | None = None
    """Manifest of the UEFI variables at that moment."""
    vtpm: str | None = None
    """Manifest of the state of the virtual TPM at that moment."""
    host: str | None = None
    """Host that holds the capture; None once it is committed."""
    pending: Pending | None = None
    """Objects that it will refer to, kept alive while they are made or looked for."""
    committed_at: datetime.datetime | None = None
    group: str | None = None
    """Id that all disks of one moment have in common."""
    group_size: int = 1
    """Disks of that moment: fewer versions of the group are not all of it."""
    schedule: str | None = None
    """Schedule that asked for it."""
    slot: str | None = None
    """Slot of the schedule."""
    expires_at: datetime.datetime | None = None
    """Moment from which on it may be deleted; None: it does not expire."""
    lock: Lock | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Free fields of its owner."""
    delta: DeltaCounts | None = None
    """Counts at its commit."""
    alpha: float | None = None
    """Share of its chunk groups that were stored anew; None: nobody has looked at them."""
    uses: tuple[str, ...] = ()
    """Uses that keep a deleted version, for example ``image/<uuid>``; sorted."""
    dedup_scope: str | None = None
    """Scope of the names that its chunks have."""
    nonce: str = dataclasses.field(default_factory=lambda: volume_records.random_nonce())
    """Different in every state, so that no two states of the ref have the same content."""
    unknown: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields that a newer release wrote; kept as they are."""

    @property
    def content(self) -> DiskState:
        """The content of the disk."""
        return DiskState(self.manifest, self.logs)

    @property
    def is_restorable(self) -> bool:
        """True if it is a restore point: all of it is in the origin, and it is not deleted."""
        return self.state in RESTORABLE

    @property
    def manifests(self) -> tuple[str, ...]:
        """Manifests that it refers to: of the disk, and of what is beside it."""
        found = (self.manifest, self.nvram, self.vtpm)
        return tuple(one for one in found if one is not None)

    def encode(self) -> bytes:
        """Return the record as JSON.

        :raises ExhaustedError: when it is too long.
        """
        fields: dict[str, Any] = {
            **self.unknown,
            "version": RECORD_VERSION,
            **{name: getattr(self, name) for name in _FIELDS},
            "disk": self.disk.to_fields(),
            "logs": [one.to_fields() for one in self.logs],
            "pending": self.pending and self.pending.to_fields(),
            "lock": self.lock and self.lock.to_fields(),
            "delta": self.delta and self.delta.to_fields(),
            "labels": dict(self.labels),
        }
        for name in _TIMES:
            moment = getattr(self, name)
            fields[name] = moment and time_text(moment)
        return encoded(fields, _TOO_LONG)

    @classmethod
    def parse(cls, content: bytes, version_id: str) -> "VersionRecord":
        """Read a record; unknown fields are kept.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed or too long.
        """
        what = f"the record of version {version_id}"
        fields = load_fields(content, what, RECORD_VERSION)
        return checked(what, lambda: cls._from_fields(fields))

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> "VersionRecord":
        known: dict[str, Any] = {name: fields.get(name) for name in _FIELDS}
        for name, enumeration in _ENUMS.items():
            known[name] = enumeration(known[name])
        for name, length_max in _LISTS.items():
            known[name] = tuple(list_of(fields, name, length_max))
        for name in _TIMES:
            known[name] = None if known[name] is None else parse_time(known[name], name)
        known.update(
            disk=DiskName.from_fields(fields.get("disk")),
            logs=parse_ranges(fields.get("logs")),
            unknown={
                name: value
                for name, value in fields.items()
                if name not in _FIELDS and name != "version"
            },
        )
        for name, part in _PARTS.items():
            known[name] = None if known[name] is None else part.from_fields(known[name])
        record = cls(**known)
        record.check()
        return record

    def check(self) -> None:
        """Refuse what is malformed.

        :raises ValueError: saying what is.
        """
        check_size(self.size_bytes)
        self.disk.check()
        for name in ("manifest", "nvram", "vtpm"):
            check_digest(getattr(self, name), name)
        for name in ("parent", "base_image", "group"):
            _check_optional_uuid(getattr(self, name), name)
        for name in ("project", "name", "schedule", "slot"):
            value = getattr(self, name)
            check_text("" if value is None and name in ("schedule", "slot") else value, name)
        self._check_times()
        for pack in self.packs:
            if pack is None:
                raise ValueError("a pack is null")
            check_digest(pack, "a pack")
        self._check_counts()
        self._check_state()
        check_metadata(self.labels)
        check_scope(self.dedup_scope)
        if not isinstance(self.nonce, str) or not _NONCE.match(self.nonce):
            raise ValueError("nonce is not 32 hexadecimal digits")

    def _check_times(self) -> None:
        if self.created_at is None:
            raise ValueError("created_at is missing")
        moments = {name: getattr(self, name) for name in _TIMES}
        if self.lock is not None:
            moments["the end of the lock"] = self.lock.until
        for name, moment in moments.items():
            if moment is not None and (moment.utcoffset() != _NO_OFFSET or moment.microsecond):
                raise ValueError(f"{name} is not in whole seconds of UTC")

    def _check_counts(self) -> None:
        if len(self.packs) > PACKS_MAX or len(self.logs) > RANGES_MAX:
            raise ValueError("too many packs or log ranges")
        if self.pending is not None and len(self.pending.packs) > PENDING_PACKS_MAX:
            raise ValueError("too many pending packs")
        if not 1 <= integer(self.group_size, "group_size") <= GROUP_SIZE_MAX:
            raise ValueError(f"group_size is not from 1 to {GROUP_SIZE_MAX}")
        if self.alpha is not None:
            is_share = isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool)
            if not is_share or not 0 <= self.alpha <= 1:
                raise ValueError("alpha is not from 0 to 1")
        if len(self.uses) > USES_MAX or list(self.uses) != sorted(set(self.uses)):
            raise ValueError("uses are too many, not sorted, or one is there twice")
        for use in self.uses:
            check_use(use)

    def _check_state(self) -> None:
        """Refuse fields that the state does not have."""
        is_captured = self.state is VersionState.CAPTURED
        if (self.host is not None) != is_captured:
            raise ValueError("a host has it and it is not captured, or the other way round")
        if self.host is not None:
            check_host(self.host)
        if is_captured and (self.manifest or self.logs or self.packs or self.committed_at):
            raise ValueError("it is only on its host, and names content in the origin")
        if not is_captured and self.committed_at is None:
            raise ValueError("committed_at is missing")
        if self.state is VersionState.CONDEMNED and not self.uses:
            raise ValueError("it is condemned and nothing uses it")


_FIELDS = tuple(
    field.name for field in dataclasses.fields(VersionRecord) if field.name != "unknown"
)
_TIMES = ("created_at", "committed_at", "expires_at")
_ENUMS: dict[str, type[enum.StrEnum]] = {
    "state": VersionState,
    "trigger": Trigger,
    "consistency": Consistency,
}
_LISTS = {"packs": PACKS_MAX, "uses": USES_MAX}
_PARTS: dict[str, Any] = {"pending": Pending, "lock": Lock, "delta": DeltaCounts}


def check_use(use: object) -> None:
    """Refuse what is no use of a version.

    :raises ValueError: unless it is a kind and a name, for example ``restore/<uuid>``.
    """
    if not isinstance(use, str) or not _USE.match(use):
        raise ValueError(f"{use!r:.60} is no use of a version")


def _check_uuid(value: object, what: str) -> None:
    if not isinstance(value, str) or layout.canonical_id(value, what) != value:
        raise ValueError(f"{what} is no UUID in its canonical form")


def _check_optional_uuid(value: object, what: str) -> None:
    if value is not None:
        _check_uuid(value, what)
