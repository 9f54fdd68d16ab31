"""The ref ``member-power`` in the home: which members sleep, and how far each switch is.

It is the truth: a process that leads reads it before each step, changes it by a swap before it
touches a machine, and may die anywhere. A member that is not in it is on. An origin whose members
never slept has none.
"""

import dataclasses
import enum
import json
from collections.abc import Collection, Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin.base import RefStore
from acstor.origin.replicated.members import check_name
from acstor.origin.replicated.power.states import TRANSITIONS, PowerEvent, PowerState

POWER_REF = "member-power"
"""Name of the ref."""
POWER_VERSION = 1
"""Version that this build writes; it reads this one only."""
RECORD_SIZE_MAX = 64 << 10
"""Longest content, bytes."""
TEXT_LENGTH_MAX = 300
"""Longest text in an entry, characters."""
ENTRIES_MAX = 256
"""Most members in it, as many as a home remembers."""
SECONDS_MAX = 1e12
"""Latest time, seconds since the epoch."""


class Desired(enum.StrEnum):
    """Word of an operator about one member, which counts more than any budget."""

    ASLEEP = "asleep"
    AWAKE = "awake"


@dataclasses.dataclass(frozen=True, slots=True)
class PowerEntry:
    """Power of one member."""

    state: PowerState = PowerState.ACTIVE
    since: float = 0.0
    """Time of the last change of the state, seconds since the epoch; 0: it never changed."""
    attempts: int = 0
    """Attempts to switch the machine that were begun in this state."""
    attempt: str = ""
    """Name of the last attempt, unique: who has swapped it in, and nobody else, may switch."""
    desired: Desired | None = None
    """None: the policy decides."""
    alarm: str = ""
    """Reason for which an operator is needed. No policy has the member sleep meanwhile."""

    def after(self, event: PowerEvent, now: float, alarm: str | None = None) -> "PowerEntry":
        """Return the entry after an event.

        :param now: seconds since the epoch.
        :param alarm: None: as before.
        :raises ConflictError: when the state does not allow it.
        """
        return dataclasses.replace(
            self,
            state=TRANSITIONS.after(self.state, event),
            since=now,
            attempts=0,
            attempt="",
            alarm=self.alarm if alarm is None else alarm[:TEXT_LENGTH_MAX],
        )


AWAKE = PowerEntry()
"""Entry of a member that is in no record."""


@dataclasses.dataclass(frozen=True, slots=True)
class PowerRecord:
    """Power of all members that ever slept."""

    members: Mapping[str, PowerEntry]

    def entry(self, name: str) -> PowerEntry:
        """Return the entry of a member."""
        return self.members.get(name, AWAKE)

    def state(self, name: str) -> PowerState:
        """Return the power state of a member."""
        return self.entry(name).state

    def with_entry(self, name: str, entry: PowerEntry) -> "PowerRecord":
        """Return the same with another entry."""
        return PowerRecord({**self.members, name: entry})

    def without(self, names: Collection[str]) -> "PowerRecord":
        """Return the same without some members: they were taken away."""
        return PowerRecord({name: one for name, one in self.members.items() if name not in names})

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        members = {name: dataclasses.asdict(one) for name, one in self.members.items()}
        fields = {"version": POWER_VERSION, "members": members}
        return json.dumps(fields, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "PowerRecord":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            if len(content) > RECORD_SIZE_MAX:
                raise ValueError("it is too long")
            fields = untrusted_json.load(content, f"the ref {POWER_REF}")
            version = fields["version"]
            if version == POWER_VERSION:
                members = fields["members"]
                if not isinstance(members, dict) or len(members) > ENTRIES_MAX:
                    raise ValueError(f"members are no object of at most {ENTRIES_MAX}")
                return cls({check_name(name): _entry(one) for name, one in members.items()})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(
                f"the ref {POWER_REF} is malformed: {error}",
                hint="see that all members are on, and remove the ref",
            ) from error
        raise exception.UnsupportedError(
            f"the ref {POWER_REF} has version {version!r:.20}, this release reads {POWER_VERSION}"
        )


ALL_AWAKE = PowerRecord({})
"""Record of an origin whose members never slept."""


def read_power(home: RefStore) -> tuple[PowerRecord, str | None]:
    """Return the record of a home and its token; None: there is none, and all are awake.

    :raises CorruptError: when it is malformed.
    :raises UnsupportedError: when a newer release wrote it.
    """
    ref = home.get_ref(POWER_REF)
    return (ALL_AWAKE, None) if ref is None else (PowerRecord.parse(ref.content), ref.token)


def swap_power(home: RefStore, token: str | None, record: PowerRecord) -> str:
    """Change the record, and return its new token.

    :raises ConflictError: when another process has changed it since it was read.
    """
    found = home.swap_ref(POWER_REF, token, record.encode())
    assert found is not None, "a ref with a content has a token"
    return found


def _entry(fields: Any) -> PowerEntry:
    desired = fields.get("desired")
    return PowerEntry(
        PowerState(fields["state"]),
        untrusted_json.number(fields["since"], "since", 0.0, SECONDS_MAX),
        untrusted_json.whole(fields.get("attempts", 0), "attempts"),
        _text(fields.get("attempt", "")),
        None if desired is None else Desired(desired),
        _text(fields.get("alarm", "")),
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > TEXT_LENGTH_MAX:
        raise ValueError(f"{value!r:.40} is no text of at most {TEXT_LENGTH_MAX} characters")
    return value
