"""Persisted state of one volume: ``volume.json`` by its owner, ``standby.json`` by its standby.

The page is ``doc/source/reference/formats/volume-kept.rst``.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin.replicated.members import check_name

FORMAT_VERSION = 2
"""Of ``volume.json`` of a volume whose log is in the home."""
MEMBER_VERSION = 3
"""Of others: an older data plane, which would write in the home, does not go on with them."""
_READABLE = frozenset({1, 2, 3})
STANDBY_VERSION = 1
"""Of ``standby.json``."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGEST = re.compile("[0-9a-f]{64}")
_SIZE_MAX = 1 << 62
_SECTOR_SIZE = 512
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


@dataclasses.dataclass(frozen=True)
class PersistedVolume:
    """Persisted state of an open volume; the fields of ``volume.json``, beside ``version``."""

    volume: str
    epoch: int
    """Of this host as the owner."""
    next: int
    """First sequence number of this epoch's log objects that manifest and logs do not hold."""
    size_bytes: int
    manifest: str | None
    """Digest of the manifest below the log, 64 hexadecimal digits; None: zeros."""
    logs: Sequence[Mapping[str, Any]]
    """Log objects over the manifest that others wrote, as in the volume's record."""
    durability: Mapping[str, Any]
    """As in the volume's record."""
    iops: int = 0
    """0: no limit."""
    bytes_per_s: int = 0
    """0: no limit."""
    adopts: int | None = None
    """The epoch in which this host closed the log that it goes on with; None: it was made anew."""
    wanted_durability: Mapping[str, Any] | None = None
    """Target of ``durability`` once the volume is open; since version 2, as ``adopts``."""
    member: str | None = None
    """Member of the origin in which the log of the epoch is, as in the volume's record; None: the
    home. Absent from files without it."""

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of ``volume.json``, without ``version``."""
        fields = dataclasses.asdict(self)
        if self.member is None:
            del fields["member"]
        return fields

    def encode(self) -> bytes:
        """Return the content of ``volume.json``."""
        version = FORMAT_VERSION if self.member is None else MEMBER_VERSION
        return _encoded(version, self.to_fields())

    @classmethod
    def decode(cls, content: bytes) -> "PersistedVolume":
        """Return what ``volume.json`` says.

        :raises CorruptError: when it is malformed or of another version.
        """
        try:
            fields, version = _fields(_READABLE, content)
            kept = cls.of_fields(fields)
            if (kept.member is not None) != (version == MEMBER_VERSION):
                raise ValueError("the version and the member of the origin contradict each other")
            return kept
        except _MALFORMED as error:
            raise exception.CorruptError(
                f"what was kept of a volume is malformed: {error}",
                hint="mend it, or have it put aside: 'acstor volume give-up'",
            ) from error

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> "PersistedVolume":
        """Return what the fields of ``volume.json`` say, without ``version``.

        :raises ValueError: or TypeError, KeyError: when they are malformed.
        """
        kept = cls(**fields)
        _check(kept)
        return kept


@dataclasses.dataclass(frozen=True)
class PersistedStandby:
    """Persisted state of a standby; the fields of ``standby.json``, beside ``version``."""

    volume: str
    size_bytes: int

    def encode(self) -> bytes:
        """Return the content of ``standby.json``."""
        return _encoded(STANDBY_VERSION, dataclasses.asdict(self))

    @classmethod
    def decode(cls, content: bytes) -> "PersistedStandby":
        """Return what ``standby.json`` says.

        :raises CorruptError: when it is malformed or of another version.
        """
        try:
            kept = cls(**_fields({STANDBY_VERSION}, content)[0])
            if not isinstance(kept.volume, str) or not isinstance(kept.size_bytes, int):
                raise ValueError("a field is of a wrong type")
            if not 0 < kept.size_bytes <= _SIZE_MAX or kept.size_bytes % _SECTOR_SIZE:
                raise ValueError("no size of a disk")
        except _MALFORMED as error:
            raise exception.CorruptError(
                f"what was kept of a standby is malformed: {error}",
                hint="mend it, or have it put aside: 'acstor volume give-up'",
            ) from error
        return kept


def is_volume_id(text: str) -> bool:
    """Return whether a text is the id of a volume."""
    return _UUID.fullmatch(text) is not None


def _encoded(version: int, fields: Mapping[str, Any]) -> bytes:
    content = {"version": version, **fields}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _fields(versions: Set[int], content: bytes) -> tuple[dict[str, Any], int]:
    fields: dict[str, Any] = untrusted_json.load(content, "it")
    version = fields.pop("version")
    if version not in versions:
        raise ValueError("another version")
    return fields, version


def _check(kept: PersistedVolume) -> None:
    adopts = [] if kept.adopts is None else [kept.adopts]
    numbers = [*adopts, kept.epoch, kept.next, kept.size_bytes, kept.iops, kept.bytes_per_s]
    for log in kept.logs:
        numbers += [log["epoch"], log["first"], log["last"]]
    for member in (kept.member, *(log.get("member") for log in kept.logs)):
        if member is not None:
            check_name(member)
    volumes = [kept.volume, *(log["volume"] for log in kept.logs)]
    is_sound = (
        all(isinstance(number, int) and number >= 0 for number in numbers)
        and all(isinstance(volume, str) and is_volume_id(volume) for volume in volumes)
        and isinstance(kept.durability, dict)
        and isinstance(kept.wanted_durability, dict | None)
        and (kept.manifest is None or _DIGEST.fullmatch(kept.manifest) is not None)
    )
    if not is_sound:
        raise ValueError("a field is of a wrong type or range")
