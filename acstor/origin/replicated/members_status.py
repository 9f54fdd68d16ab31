"""Status of the members as the leading process saw it last: a ref of the home, for operators.

Nothing is decided by it but by people. Its time is that of one clock, shown as it is.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin.base import RefStore
from acstor.origin.replicated.members import check_name
from acstor.origin.replicated.power.states import PowerState

STATUS_REF = "members-status"
"""Name of the ref."""
STATUS_VERSION = 1
"""Version that this build writes; it reads this one only."""
STATUS_SIZE_MAX = 64 << 10
"""Longest content, bytes."""
SECONDS_MAX = 1e12
"""Latest time, seconds since the epoch."""
BUDGET_MAX = 1e9
"""Largest budget of power, watts."""
ERROR_LENGTH_MAX = 500
"""Longest error of a member, characters."""


@dataclasses.dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member as it was seen."""

    is_reachable: bool
    owed_bytes: int
    """Bytes of objects that others have and it shall have."""
    sole_bytes: int
    """Bytes of objects that it owes to others: lost with it if it is lost now."""
    refs_behind: int
    """Refs that differ from their copies in it; 0 for the home."""
    refs_age_seconds: float | None
    """Age of the last pass that copied all refs to it; None: there was none, or it is the home."""
    error: str = ""
    power: PowerState = PowerState.ACTIVE


@dataclasses.dataclass(frozen=True, slots=True)
class PowerStatus:
    """Budget of power as the leading process knows it."""

    policy: str
    """Name of the plug-in that decides who sleeps."""
    source: str
    """Place that the budget comes from, without credentials; empty: there is none."""
    unit: str
    """``watts``, or ``members``."""
    budget: float | None
    """None: unknown, so that all members are to be on."""
    age_seconds: float | None
    """Time since the budget was read; None: it never was."""
    error: str
    """Reason for which it could not be read last time; empty: it could."""
    reason: str
    """Explanation of the last decision, for people."""


@dataclasses.dataclass(frozen=True, slots=True)
class MembersStatus:
    """All members."""

    updated_at: float
    """Seconds since the epoch."""
    leader: str
    """Name of the process."""
    compared_at: float | None
    """Time of the last comparison of all listings, likewise; None: not since that process leads.
    What was stored since, by processes that were killed, is in no figure."""
    members: Mapping[str, MemberStatus]
    power: PowerStatus | None = None
    """None: members never sleep."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON; nothing of power where all are on."""
        fields = {"version": STATUS_VERSION, **dataclasses.asdict(self)}
        for one in fields["members"].values():
            if one["power"] is PowerState.ACTIVE:
                del one["power"]
        if self.power is None:
            del fields["power"]
        return json.dumps(fields, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "MembersStatus":
        """Read the ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            if len(content) > STATUS_SIZE_MAX:
                raise ValueError("it is too long")
            fields = untrusted_json.load(content, "the status of the members")
            version = fields["version"]
            if version == STATUS_VERSION:
                return cls(
                    _seconds(fields["updated_at"]),
                    _text(fields["leader"]),
                    None if fields["compared_at"] is None else _seconds(fields["compared_at"]),
                    {check_name(name): _status(one) for name, one in fields["members"].items()},
                    _power(fields.get("power")),
                )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(
                f"the ref {STATUS_REF} is malformed: {error}",
                hint="the registrar that leads writes it anew within some minutes",
            ) from error
        raise exception.UnsupportedError(
            f"the ref {STATUS_REF} has version {version!r:.20}, this release reads {STATUS_VERSION}"
        )


def read_status(home: RefStore) -> MembersStatus | None:
    """Return the status that the home has, None where there is none.

    :raises CorruptError: when it is malformed.
    """
    ref = home.get_ref(STATUS_REF)
    return None if ref is None else MembersStatus.parse(ref.content)


def write_status(home: RefStore, status: MembersStatus) -> None:
    """Have the home have a status; whoever writes later counts.

    :raises ConflictError: when another process writes at the same moment.
    """
    present = home.get_ref(STATUS_REF)
    home.swap_ref(STATUS_REF, None if present is None else present.token, status.encode())


def _status(fields: Any) -> MemberStatus:
    age = fields["refs_age_seconds"]
    return MemberStatus(
        fields["is_reachable"] is True,
        untrusted_json.whole(fields["owed_bytes"], "owed_bytes"),
        untrusted_json.whole(fields["sole_bytes"], "sole_bytes"),
        untrusted_json.whole(fields["refs_behind"], "refs_behind"),
        None if age is None else _seconds(age),
        _text(fields["error"]),
        PowerState(fields.get("power", PowerState.ACTIVE)),
    )


def _power(fields: Any) -> PowerStatus | None:
    if fields is None:
        return None
    budget, age = fields["budget"], fields["age_seconds"]
    return PowerStatus(
        _text(fields["policy"]),
        _text(fields["source"]),
        _text(fields["unit"]),
        None if budget is None else untrusted_json.number(budget, "budget", 0.0, BUDGET_MAX),
        None if age is None else _seconds(age),
        _text(fields["error"]),
        _text(fields["reason"]),
    )


def _seconds(value: object) -> float:
    return untrusted_json.number(value, "a time", 0.0, SECONDS_MAX)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > ERROR_LENGTH_MAX:
        raise ValueError(f"{value!r:.40} is no text of at most {ERROR_LENGTH_MAX} characters")
    return value
