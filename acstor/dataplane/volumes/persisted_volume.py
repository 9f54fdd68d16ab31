"""Persisted state of one volume: ``volume.json`` by its owner, ``standby.json`` by its standby.

The page is ``doc/source/reference/formats/volume-kept.rst``.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from acstor import exception, untrusted_json

FORMAT_VERSION = 2
"""Of ``volume.json``."""
_READABLE = frozenset({1, 2})
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

    def encode(self) -> bytes:
        """Return the content of ``volume.json``."""
        return _encoded(FORMAT_VERSION, self)

    @classmethod
    def decode(cls, content: bytes) -> "PersistedVolume":
        """Return what ``volume.json`` says.

        :raises CorruptError: when it is malformed or of another version.
        """
        try:
            return cls.of_fields(_fields(_READABLE, content))
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
        return _encoded(STANDBY_VERSION, self)

    @classmethod
    def decode(cls, content: bytes) -> "PersistedStandby":
        """Return what ``standby.json`` says.

        :raises CorruptError: when it is malformed or of another version.
        """
        try:
            kept = cls(**_fields({STANDBY_VERSION}, content))
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


def _encoded(version: int, kept: PersistedVolume | PersistedStandby) -> bytes:
    fields = {"version": version, **dataclasses.asdict(kept)}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _fields(versions: Set[int], content: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = untrusted_json.load(content, "it")
    if fields.pop("version") not in versions:
        raise ValueError("another version")
    return fields


def _check(kept: PersistedVolume) -> None:
    adopts = [] if kept.adopts is None else [kept.adopts]
    numbers = [*adopts, kept.epoch, kept.next, kept.size_bytes, kept.iops, kept.bytes_per_s]
    for log in kept.logs:
        numbers += [log["epoch"], log["first"], log["last"]]
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
