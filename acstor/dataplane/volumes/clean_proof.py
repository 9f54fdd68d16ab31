"""The proof that a local log may be removed: ``clean.json``, beside the log.

It is there while nothing that a client was told is in the log alone, and gone, for good, before
the first client is served from it. The page is ``doc/source/reference/formats/volume-kept.rst``.
"""

import dataclasses
import enum
import json
from typing import Any

from acstor import exception, untrusted_json
from acstor.dataplane.volumes.persisted_volume import PersistedVolume, is_volume_id

CLEAN_VERSION = 2
"""Of ``clean.json`` with ``taking``; one without it is of version 1."""
_VERSION_WITHOUT_TAKING = 1

_NONE = "none"
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


class CleanReason(enum.StrEnum):
    """Reason for which a log may be removed."""

    UNSERVED = "unserved"
    """No client was served from it yet."""
    RELEASED = "released"
    """Everything that travels was pushed, and the volume given back in this epoch."""
    PUSHED = "pushed"
    """Another host owns the volume, and this one had pushed everything that travels."""


@dataclasses.dataclass(frozen=True)
class CleanProof:
    """Proof that a volume's log may go; the fields of ``clean.json``, beside ``version``."""

    volume: str
    why: CleanReason
    opened: PersistedVolume | None = None
    """State with which the volume was opened when the log was written; None: nothing was."""
    taking: int | None = None
    """The epoch in which this host last tried to own the volume and go on with this log; written
    before the record is asked for it. None: it has not tried."""

    def encode(self) -> bytes:
        """Return the content of ``clean.json``."""
        opened = None if self.opened is None else self.opened.to_fields()
        fields = {"version": CLEAN_VERSION, **dataclasses.asdict(self), "opened": opened}
        if self.taking is None:
            del fields["taking"]
            fields["version"] = _VERSION_WITHOUT_TAKING
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes) -> "CleanProof":
        """Return what ``clean.json`` says.

        :raises CorruptError: when it is malformed or of another version.
        """
        try:
            fields: dict[str, Any] = untrusted_json.load(content, "it")
            if fields.pop("version") not in (_VERSION_WITHOUT_TAKING, CLEAN_VERSION):
                raise ValueError("another version")
            opened = fields.pop("opened")
            why = CleanReason(fields.pop("why"))
            kept = cls(why=why, opened=opened and PersistedVolume.of_fields(opened), **fields)
            if not is_volume_id(kept.volume):
                raise ValueError("no id of a volume")
            if not isinstance(kept.taking, int | None):
                raise ValueError("no epoch")
        except _MALFORMED as error:
            raise exception.CorruptError(f"what was kept of a log is malformed: {error}") from error
        return kept


def has_none(clean: CleanProof) -> bool:
    """Return whether a log that was given back has parts that never travel."""
    if clean.why is not CleanReason.RELEASED or clean.opened is None:
        return False
    durability = clean.opened.durability
    classes = [durability.get("default")]
    classes += [region.get("class") for region in durability.get("regions", ())]
    return _NONE in classes
