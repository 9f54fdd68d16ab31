"""Admitted preload, and the file that outlives the agent."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.control.protocol import PRELOAD_RATE_MAX, PreloadWhat
from acstor.files import write_atomically
from acstor.preload.request import checked_id, checked_image, checked_what, is_number, is_whole
from acstor.preload.states import AdmittedPreloadEvent, AdmittedPreloadState, next_state

FILE_VERSION = 1
ADMITTED_MAX = 1024
"""Most admitted preloads of a host, ended ones included."""
_FILE_BYTES_MAX = 4 << 20
_BYTES_MAX = 1 << 62
_TEXT_MAX = 500


@dataclasses.dataclass(slots=True)
class AdmittedPreload:
    """One preload that this host admitted. Times are POSIX times of this host, seconds."""

    id: str
    image: str
    what: PreloadWhat
    pin: bool
    rate_bytes_per_s: int
    """At which it is fetched now."""
    is_rate_fixed: bool
    """True if the rate was asked for, so that nothing may raise it."""
    deadline_at: float | None
    promised_at: float
    total_bytes: int
    missing_bytes: int
    """Bytes that were missing when it was admitted."""
    state: AdmittedPreloadState = AdmittedPreloadState.WAITING
    ended_at: float | None = None
    error: str | None = None
    """Reason for which it waits or has failed."""
    remaining_bytes: int = 0
    recent_bytes_per_s: int = 0

    def move(self, event: AdmittedPreloadEvent, now: float, error: str | None = None) -> bool:
        """Let something happen; return whether the state has changed."""
        former, self.state = self.state, next_state(self.state, event)
        self.error = None if error is None else error[:_TEXT_MAX]
        if self.state.has_ended and self.ended_at is None:
            self.ended_at = now
        if self.state is not AdmittedPreloadState.RUNNING:
            self.recent_bytes_per_s = 0
        return former is not self.state

    def is_late(self, now: float) -> bool:
        """Return whether the deadline is over and not everything is there."""
        return self.deadline_at is not None and not self.state.has_ended and now > self.deadline_at

    def eta_s(self) -> float | None:
        """Return the seconds that the rest takes at the present speed, None: not known."""
        if self.state.has_ended:
            return None
        if not self.remaining_bytes:
            return 0.0
        if self.state is AdmittedPreloadState.RUNNING and self.recent_bytes_per_s:
            return self.remaining_bytes / self.recent_bytes_per_s
        return None

    def to_status(self, host: str, now: float) -> dict[str, object]:
        """Return the admitted preload as it is told to other hosts, whose clocks may differ."""
        return {
            "host": host,
            "id": self.id,
            "image": self.image,
            "what": str(self.what),
            "pin": self.pin,
            "state": str(self.state),
            "is_late": self.is_late(now),
            "total_bytes": self.total_bytes,
            "remaining_bytes": self.remaining_bytes,
            "rate_bytes_per_s": self.rate_bytes_per_s,
            "recent_bytes_per_s": self.recent_bytes_per_s,
            "eta_s": self.eta_s(),
            "deadline_s": None if self.deadline_at is None else self.deadline_at - now,
            "age_s": max(0.0, now - self.promised_at),
            "error": self.error,
        }


class AdmittedPreloadFile:
    """Keeps the admitted preloads of a host across restarts of everything.

    :param path: of the file; each write replaces it, and is on the disk when it returns.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def load(self) -> list[AdmittedPreload]:
        """Return what was saved last, nothing at the first time.

        :raises CorruptError: when the file is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        :raises OSError: when it cannot be read.
        """
        try:
            with open(self._path, "rb") as source:
                content = source.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return []
        return decode(content)

    def put_aside(self) -> None:
        """Keep a file that is not readable for a person to look at, under another name."""
        with contextlib.suppress(OSError):
            os.replace(self._path, f"{self._path}.unreadable")

    def save(self, admitted_preloads: Iterable[AdmittedPreload]) -> None:
        """Replace what was saved.

        :raises OSError: when it cannot be written; the file is then as it was.
        """
        write_atomically(self._path, encode(admitted_preloads), is_synced=True)


def encode(admitted_preloads: Iterable[AdmittedPreload]) -> bytes:
    """Return the file's content, JSON."""
    entries = [_entry(admitted) for admitted in admitted_preloads]
    fields = {"version": FILE_VERSION, "promises": entries}
    return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"


def decode(content: bytes) -> list[AdmittedPreload]:
    """Read a file's content; unknown fields are ignored.

    Errors as in :meth:`AdmittedPreloadFile.load`.
    """
    malformed = exception.CorruptError(
        "the file of admitted preloads is malformed",
        hint="remove it, then admitted preload anew what 'acstor preload list' no longer shows",
    )
    if len(content) > _FILE_BYTES_MAX:
        raise malformed
    try:
        fields = untrusted_json.load(content, "the file")
        version, entries = fields["version"], fields["promises"]
    except (ValueError, TypeError, KeyError) as error:
        raise malformed from error
    if version != FILE_VERSION:
        raise exception.UnsupportedError(
            f"the file of admitted preloads has version {version!r:.20}, this release reads "
            f"{FILE_VERSION}"
        )
    if not isinstance(entries, list) or len(entries) > ADMITTED_MAX:
        raise malformed
    try:
        return [_preload(entry) for entry in entries]
    except (exception.InvalidError, ValueError, TypeError, AttributeError) as error:
        raise malformed from error


def _entry(admitted: AdmittedPreload) -> dict[str, object]:
    fields = dataclasses.asdict(admitted)
    del fields["recent_bytes_per_s"]
    return fields | {"what": str(admitted.what), "state": str(admitted.state)}


def _preload(entry: Mapping[str, Any]) -> AdmittedPreload:
    state = AdmittedPreloadState(str(entry.get("state")))
    # Whatever was fetched when this was written, no job is known of now.
    return AdmittedPreload(
        id=checked_id(entry.get("id")),
        image=checked_image(entry.get("image")),
        what=checked_what(entry.get("what")),
        pin=_flag(entry, "pin"),
        rate_bytes_per_s=_size(entry, "rate_bytes_per_s", PRELOAD_RATE_MAX),
        is_rate_fixed=_flag(entry, "is_rate_fixed"),
        deadline_at=_time(entry, "deadline_at"),
        promised_at=_time(entry, "promised_at") or 0.0,
        total_bytes=_size(entry, "total_bytes"),
        missing_bytes=_size(entry, "missing_bytes"),
        state=state if state.has_ended else AdmittedPreloadState.WAITING,
        ended_at=_time(entry, "ended_at"),
        error=_text(entry, "error"),
        remaining_bytes=_size(entry, "remaining_bytes"),
    )


def _flag(entry: Mapping[str, Any], name: str) -> bool:
    value = entry.get(name)
    if not isinstance(value, bool):
        raise ValueError(name)
    return value


def _size(entry: Mapping[str, Any], name: str, most: int = _BYTES_MAX) -> int:
    value = entry.get(name)
    if not is_whole(value) or not 0 <= int(value or 0) <= most:
        raise ValueError(name)
    return int(value or 0)


def _time(entry: Mapping[str, Any], name: str) -> float | None:
    value = entry.get(name)
    if value is not None and (not is_number(value) or value < 0):
        raise ValueError(name)
    return None if value is None else float(value)


def _text(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _TEXT_MAX):
        raise ValueError(name)
    return value
