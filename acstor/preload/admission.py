"""Admission of preloads by a host, decided before anything starts; and the rate of each.

A preload that is doubtful is refused. What is known then: how much is missing, what room there
is, how fast the link is, and what this host has admitted already. What is not known, reads of
guests above all, is what the margin of the rate and the limit's share of the link are for.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from acstor import exception
from acstor.control.protocol import PRELOAD_RATE_MAX
from acstor.preload.request import (
    DEADLINE_MAX,
    DEADLINE_MIN,
    RATE_MIN,
    PreloadRequest,
    is_number,
    is_whole,
)

_BYTES_MAX = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the part of a host that preloads take; see ``[preload]`` of its configuration."""

    rate: int
    """Rate of a preload without rate and deadline, bytes per second."""
    rate_max: int = 0
    """Most of all preloads together, bytes per second; 0: no limit of this kind."""
    link_share: float = 0.5
    margin: float = 1.25

    def most(self, link_bytes_per_s: float | None) -> int | None:
        """Return the most that all preloads may take, bytes per second; None: no limit known."""
        found = [self.rate_max] if self.rate_max else []
        if link_bytes_per_s:
            found.append(int(link_bytes_per_s * self.link_share))
        return min(found, default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a preload for one host, bytes where not said otherwise."""

    host: str
    total_bytes: int
    """Different chunks with content."""
    missing_bytes: int
    """Of these, not in the chunk store."""
    free_bytes: int
    evictable_bytes: int
    pinnable_bytes: int
    default_rate: int
    """Bytes per second."""
    most_rate: int | None
    """Most of all preloads of the host together, bytes per second; None: no limit is known."""
    margin: float
    promised_rate: int = 0
    """Bytes per second of the preloads that the host has admitted and not ended."""
    promised_bytes: int = 0
    """Bytes that these have still to fetch."""
    is_draining: bool = False
    active: str | None = None
    """Id of the admitted preload that the host is keeping for this image."""

    @property
    def left_rate(self) -> int | None:
        """Bytes per second that may still be admitted; None: no limit is known."""
        return None if self.most_rate is None else max(0, self.most_rate - self.promised_rate)

    @property
    def room_bytes(self) -> int:
        """Bytes that the chunk store can still take in."""
        return max(0, self.free_bytes + self.evictable_bytes - self.promised_bytes)

    @classmethod
    def from_answer(cls, host: str, answer: object) -> "Estimate":
        """Return the estimate that a host answers with.

        :raises InternalError: when it is none.
        """
        problem = exception.InternalError(f"host {host} answered nonsense to preload_estimate")
        if not isinstance(answer, Mapping):
            raise problem
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = answer.get(field.name)
            if not _CHECKS[field.type](value):
                raise problem
            values[field.name] = value
        return cls(**{**values, "host": host})


_CHECKS: dict[object, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    int: lambda value: is_whole(value) and 0 <= value <= _BYTES_MAX,
    int | None: lambda value: value is None or (is_whole(value) and 0 <= value <= _BYTES_MAX),
    float: lambda value: is_number(value) and 1 <= value <= 1000,
    bool: lambda value: isinstance(value, bool),
    str | None: lambda value: value is None or isinstance(value, str),
}


class Reason(enum.StrEnum):
    """Reason for which a host refuses."""

    SILENT = "silent"
    """It is no member, or does not answer."""
    DRAINING = "draining"
    ACTIVE = "active"
    """It is keeping a preload of this image already."""
    UNKNOWN = "unknown"
    """It does not offer the image, or knows of no working set of it."""
    ROOM = "room"
    PIN = "pin"
    RATE = "rate"
    DEADLINE = "deadline"
    FAILED = "failed"
    """It could not say."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Admission or refusal of a preload by one host."""

    host: str
    rate_bytes_per_s: int = 0
    """At which it will fetch."""
    seconds: float = 0.0
    """Time that it takes when no guest reads, seconds."""
    reason: Reason | None = None
    """Reason for a refusal; None: it is admitted."""
    text: str = ""
    """The reason in words."""
    missing_bytes: int = 0
    left_rate: int | None = None
    """Most that it could still admit, bytes per second; None: no limit is known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Suggestion:
    """Rate or deadline that all hosts would admit, each on its own; None: nothing of that kind."""

    rate_bytes_per_s: int | None = None
    deadline_s: float | None = None


def judge(request: PreloadRequest, estimate: Estimate) -> Verdict:
    """Decide for one host."""
    host, missing, left = estimate.host, estimate.missing_bytes, estimate.left_rate

    def refuse(reason: Reason, text: str) -> Verdict:
        return Verdict(host, reason=reason, text=text, missing_bytes=missing, left_rate=left)

    if estimate.is_draining:
        return refuse(Reason.DRAINING, "it is drained")
    if estimate.active is not None:
        return refuse(Reason.ACTIVE, "it is preloading this image already")
    if missing > estimate.room_bytes:
        return refuse(
            Reason.ROOM,
            f"{missing} bytes are missing, its chunk store has room for {estimate.room_bytes}",
        )
    if request.pin and missing > estimate.pinnable_bytes:
        return refuse(
            Reason.PIN,
            f"{missing} bytes are missing, {estimate.pinnable_bytes} more can be pinned there",
        )
    if left is not None and left < RATE_MIN:
        return refuse(
            Reason.RATE,
            f"what it has admitted already takes {estimate.promised_rate} of the "
            f"{estimate.most_rate} bytes/s that preloads may take there",
        )
    return _judge_rate(request, estimate, left)


def suggest(request: PreloadRequest, verdicts: Iterable[Verdict]) -> Suggestion:
    """Return with which rate, or with which deadline, no host would refuse.

    Nothing is suggested where a host refuses for another reason.
    """
    found = list(verdicts)
    if any(each.reason not in {None, Reason.RATE, Reason.DEADLINE} for each in found):
        return Suggestion()
    most = min((each.left_rate for each in found if each.left_rate is not None), default=None)
    if not found or (most is not None and most < RATE_MIN):
        return Suggestion()
    missing = max(each.missing_bytes for each in found)
    rate = request.rate_bytes_per_s
    if request.deadline_s is not None:
        least = least_rate_for(missing, request.deadline_s)
        rate = max(least, rate or 0) if most is None else max(least, min(rate or 0, most))
        possible = None if most is not None and least > most else rate
    else:
        possible = most
    deadline = None
    if request.deadline_s is not None and (
        request.rate_bytes_per_s is None or most is None or request.rate_bytes_per_s <= most
    ):
        speed = request.rate_bytes_per_s or most
        if speed is not None:
            deadline = max(DEADLINE_MIN, float(math.ceil(seconds_at(missing, speed) + 1e-6)))
    return Suggestion(
        None if possible == request.rate_bytes_per_s else possible,
        None if deadline is None or deadline > DEADLINE_MAX else deadline,
    )


def _judge_rate(request: PreloadRequest, estimate: Estimate, left: int | None) -> Verdict:
    host, missing, deadline = estimate.host, estimate.missing_bytes, request.deadline_s
    verdict = Verdict(host, missing_bytes=missing, left_rate=left)
    rate = request.rate_bytes_per_s
    if rate is not None and left is not None and rate > left:
        return dataclasses.replace(
            verdict,
            reason=Reason.RATE,
            text=f"{left} bytes/s are left of what preloads may take there, {rate} are asked for",
        )
    if rate is None:
        rate = estimate.default_rate
        if deadline is not None:
            rate = rate_for(missing, deadline, estimate.margin)
        rate = rate if left is None else min(rate, left)
    seconds = seconds_at(missing, rate)
    if deadline is not None and seconds > deadline:
        return dataclasses.replace(
            verdict,
            reason=Reason.DEADLINE,
            text=f"{missing} bytes at {rate} bytes/s take {seconds:.0f} s, not {deadline:g} s",
        )
    return dataclasses.replace(verdict, rate_bytes_per_s=rate, seconds=seconds)


def seconds_at(missing_bytes: int, rate_bytes_per_s: int) -> float:
    """Return the seconds that a rate takes for so much."""
    return missing_bytes / max(1, rate_bytes_per_s)


def least_rate_for(missing_bytes: int, seconds: float) -> int:
    """Return the lowest rate that fetches so much in that time, bytes per second."""
    return max(RATE_MIN, _ceiling(missing_bytes / seconds))


def rate_for(missing_bytes: int, seconds: float, margin: float) -> int:
    """Return the rate that a deadline takes, with its margin, bytes per second.

    :param seconds: until the deadline; less than one counts as one.
    """
    return max(RATE_MIN, _ceiling(margin * missing_bytes / max(1.0, seconds)))


def _ceiling(rate: float) -> int:
    """Return the next whole rate, a little above, so that rounding never misses a deadline."""
    return min(PRELOAD_RATE_MAX, math.ceil(rate * (1 + 1e-9)))
