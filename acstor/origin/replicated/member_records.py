"""The refs that make stores the members of one origin: ``member`` in each, ``members`` in the home.

A member carries a generation that grows now and then, first in the member, then in the home. One
that is behind the home was restored from a backup and lacks what it has acknowledged (RFD 38).
"""

import dataclasses
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from acstor import exception, untrusted_json
from acstor.origin.base import RefStore
from acstor.origin.replicated.members import MEMBERS_MAX, check_name
from acstor.origin.replicated.states import MemberState

MEMBER_REF = "member"
"""Name of the ref in each member."""
MEMBERS_REF = "members"
"""Name of the ref in the home."""
MEMBER_VERSION = 1
"""Version of both refs; this build reads and writes this one only."""
RECORD_SIZE_MAX = 64 << 10
"""Longest content of either, bytes."""
REMEMBERED_MAX = 256
"""Most members, removed ones included, whose names are remembered."""

Parsed = TypeVar("Parsed")


@dataclasses.dataclass(frozen=True, slots=True)
class MemberMark:
    """Identity that a member carries, and its generation."""

    origin: str
    """UUID of the origin that it is a member of."""
    name: str
    home: str
    """Name of the member that is the home of the refs."""
    generation: int
    """At least 1."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        return _encoded(dataclasses.asdict(self))

    @classmethod
    def parse(cls, content: bytes) -> "MemberMark":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """

        def parsed(fields: Mapping[str, Any]) -> MemberMark:
            return cls(
                _uuid(fields["origin"]),
                check_name(fields["name"]),
                check_name(fields["home"]),
                untrusted_json.whole(fields["generation"], "generation", 1),
            )

        return _parsed(content, f"the ref {MEMBER_REF}", parsed)


@dataclasses.dataclass(frozen=True, slots=True)
class MemberEntry:
    """One member as the home knows it."""

    generation: int
    state: MemberState


@dataclasses.dataclass(frozen=True, slots=True)
class MembersRecord:
    """All members, removed ones included: their names are never used again."""

    origin: str
    home: str
    members: Mapping[str, MemberEntry]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all, the home first."""
        return tuple(sorted(self.members, key=lambda name: (name != self.home, name)))

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        members = {name: dataclasses.asdict(entry) for name, entry in self.members.items()}
        return _encoded({"origin": self.origin, "home": self.home, "members": members})

    def with_member(self, name: str, entry: MemberEntry) -> "MembersRecord":
        """Return the same with one member changed or added.

        :raises ExhaustedError: when there are too many.
        """
        members = {**self.members, name: entry}
        present = [one for one in members.values() if one.state is not MemberState.REMOVED]
        if len(members) > REMEMBERED_MAX or len(present) > MEMBERS_MAX:
            raise exception.ExhaustedError(
                f"the origin has {len(present)} members, {MEMBERS_MAX} may be",
                hint="take one away before another joins",
            )
        return dataclasses.replace(self, members=members)

    @classmethod
    def parse(cls, content: bytes) -> "MembersRecord":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """

        def parsed(fields: Mapping[str, Any]) -> MembersRecord:
            members = fields["members"]
            if not isinstance(members, dict) or len(members) > REMEMBERED_MAX:
                raise ValueError(f"members are no object of at most {REMEMBERED_MAX}")
            entries = {check_name(name): _entry(entry) for name, entry in members.items()}
            home = check_name(fields["home"])
            if home not in entries:
                raise ValueError("the home is no member")
            return cls(_uuid(fields["origin"]), home, entries)

        return _parsed(content, f"the ref {MEMBERS_REF}", parsed)


def read_mark(refs: RefStore) -> tuple[MemberMark | None, str | None]:
    """Return what a store says which member it is, None where it is none, and the ref's token.

    :raises CorruptError: when the ref is malformed.
    :raises UnsupportedError: when a newer release wrote it.
    """
    ref = refs.get_ref(MEMBER_REF)
    return (None, None) if ref is None else (MemberMark.parse(ref.content), ref.token)


def read_members(home: RefStore) -> tuple[MembersRecord | None, str | None]:
    """Return what the home says of all members, None where it says nothing, and the ref's token.

    :raises CorruptError: when the ref is malformed.
    :raises UnsupportedError: when a newer release wrote it.
    """
    ref = home.get_ref(MEMBERS_REF)
    return (None, None) if ref is None else (MembersRecord.parse(ref.content), ref.token)


def _entry(fields: Any) -> MemberEntry:
    generation = untrusted_json.whole(fields["generation"], "generation", 1)
    return MemberEntry(generation, MemberState(fields["state"]))


def _uuid(value: object) -> str:
    if not isinstance(value, str) or str(uuid.UUID(value)) != value:
        raise ValueError("origin is no UUID in its usual form")
    return value


def _encoded(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": MEMBER_VERSION, **fields}, sort_keys=True).encode() + b"\n"


def _parsed(content: bytes, what: str, parse: Callable[[Mapping[str, Any]], Parsed]) -> Parsed:
    try:
        if len(content) > RECORD_SIZE_MAX:
            raise ValueError("it is too long")
        fields = untrusted_json.load(content, what)
        version = fields["version"]
        if version == MEMBER_VERSION:
            return parse(fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise exception.CorruptError(
            f"{what} of a member is malformed: {error}",
            hint="give the member up, or restore the ref from a backup of that store",
        ) from error
    raise exception.UnsupportedError(
        f"{what} has version {version!r:.20}, this release reads {MEMBER_VERSION}"
    )
