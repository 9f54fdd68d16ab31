"""Locks and expiry of versions: pure rules, the time passed in.

A lock is for those who fear that somebody with the owner's rights deletes everything: while it
lasts, a version is neither deleted nor does it expire, and its expiry may only be put off.
"""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from acstor import exception

REASON_LENGTH_MAX = 255
"""Longest reason of a lock, characters."""


def parse_time(value: object, what: str) -> datetime.datetime:
    """Return the moment that a text says, in UTC.

    :raises ValueError: when it is no time of ISO 8601 with a zone.
    """
    if not isinstance(value, str) or len(value) > 40:
        raise ValueError(f"{what} is no text with a time")
    moment = datetime.datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(f"{what} has no zone")
    try:
        return moment.astimezone(datetime.UTC)
    except OverflowError as error:
        raise ValueError(f"{what} is out of range") from error


def time_text(moment: datetime.datetime) -> str:
    """Return the text of a moment: UTC, ISO 8601, whole seconds."""
    return moment.astimezone(datetime.UTC).isoformat(timespec="seconds")


@dataclasses.dataclass(frozen=True, slots=True)
class Lock:
    """Lock of a version."""

    reason: str = ""
    until: datetime.datetime | None = None
    """End of the lock; None: until somebody takes it off."""

    def holds(self, now: datetime.datetime) -> bool:
        """Return whether it lasts."""
        return self.until is None or now < self.until

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        until = None if self.until is None else time_text(self.until)
        return {"reason": self.reason, "until": until}

    @classmethod
    def from_fields(cls, fields: object) -> "Lock":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("a lock is no JSON object")
        reason, until = fields.get("reason"), fields.get("until")
        if not isinstance(reason, str) or len(reason) > REASON_LENGTH_MAX:
            raise ValueError(f"the reason of a lock is no text of at most {REASON_LENGTH_MAX}")
        return cls(reason, None if until is None else parse_time(until, "the end of a lock"))


def is_locked(lock: Lock | None, now: datetime.datetime) -> bool:
    """Return whether a version is locked."""
    return lock is not None and lock.holds(now)


def is_expired(
    expires_at: datetime.datetime | None, lock: Lock | None, now: datetime.datetime
) -> bool:
    """Return whether a version's time is over; never while it is locked."""
    return expires_at is not None and expires_at <= now and not is_locked(lock, now)


def check_deletable(what: str, lock: Lock | None, now: datetime.datetime) -> None:
    """Refuse to delete what is locked.

    :param what: names the version in the message.
    :raises ConflictError: while it is.
    """
    if lock is None or not lock.holds(now):
        return
    until = "until somebody unlocks it" if lock.until is None else f"until {time_text(lock.until)}"
    reason = f": {lock.reason}" if lock.reason else ""
    raise exception.ConflictError(f"{what} is locked {until}{reason}", hint="unlock it first")


def check_expiry(
    what: str,
    before: datetime.datetime | None,
    after: datetime.datetime | None,
    lock: Lock | None,
    now: datetime.datetime,
) -> None:
    """Refuse an earlier expiry of what is locked.

    :param before: expiry so far; None: it never expires.
    :param after: expiry that is asked for.
    :raises ConflictError: when it would be earlier.
    """
    is_earlier = after is not None and (before is None or after < before)
    if is_earlier and is_locked(lock, now):
        raise exception.ConflictError(
            f"{what} is locked and cannot expire earlier", hint="unlock it first"
        )


def check_lock(what: str, before: Lock | None, after: Lock, now: datetime.datetime) -> None:
    """Refuse to replace a lock by one that ends earlier: unlocking is another right.

    :raises ConflictError: when it would.
    """
    if before is None or not before.holds(now):
        return
    is_earlier = after.until is not None and (before.until is None or after.until < before.until)
    if is_earlier:
        raise exception.ConflictError(
            f"{what} is locked for longer than that", hint="unlock it first"
        )
