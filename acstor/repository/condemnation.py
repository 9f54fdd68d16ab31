"""Condemned objects: tombstones of packs and manifests that garbage collection will delete.

A tombstone is the ref ``gc/condemned/<name>`` and changes by compare-and-swap only::

                 condemn                  seal
    (absent) ---------------> CONDEMNED ---------> DELETING ---> (absent)
        ^                         |                        finish (after the deletion)
        +-------------------------+
             lift or rescue

``condemn``, ``seal``, ``finish`` and ``lift`` are the collector's; ``rescue`` is the
registration's, for an object that its published image refers to. Every tombstone has a nonce, so
its token names this condemnation and no earlier or later one. Why this is safe is in RFD 5.
"""

import dataclasses
import enum
import json
import secrets

from acstor import exception
from acstor.origin import base
from acstor.repository import layout

TOMBSTONE_VERSION = 1


def random_nonce() -> str:
    """Return what tells one condemnation from all others."""
    return secrets.token_hex(16)


class State(enum.StrEnum):
    """What may happen to a condemned object next."""

    CONDEMNED = "condemned"
    """Found unreferenced; it is left alone for the grace period and may be saved."""
    DELETING = "deleting"
    """Being deleted, for good; nobody may rely on it."""


TRANSITIONS: frozenset[tuple[State | None, State | None]] = frozenset(
    {
        (None, State.CONDEMNED),  # condemn
        (State.CONDEMNED, State.CONDEMNED),  # another host's collector notes when it saw it
        (State.CONDEMNED, None),  # lift, rescue
        (State.CONDEMNED, State.DELETING),  # seal
        (State.DELETING, None),  # finish
    }
)
"""Every change that a tombstone makes; None: absent."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tombstone:
    """One state of one condemnation."""

    name: str
    """Id of the pack or digest of the manifest."""
    key: str
    """Key of the object."""
    state: State
    seen: dict[str, float]
    """Host of a collector -> that host's time (seconds) when it first saw the tombstone."""
    nonce: str = dataclasses.field(default_factory=lambda: random_nonce())
    token: str | None = None
    """Token of the ref in this state; None: not in the origin yet."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {
            "version": TOMBSTONE_VERSION,
            "key": self.key,
            "state": self.state.value,
            "seen": self.seen,
            "nonce": self.nonce,
        }
        return json.dumps(fields, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, name: str, ref: base.Ref) -> "Tombstone":
        """Read a tombstone.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        try:
            fields = json.loads(ref.content)
            version = fields["version"]
            if version == TOMBSTONE_VERSION:
                key = fields["key"]
                if key not in (layout.pack_key(name), layout.manifest_key(name)):
                    raise ValueError("key")
                seen = {str(host): float(time) for host, time in fields["seen"].items()}
                state = State(fields["state"])
                return cls(name, key, state, seen, str(fields["nonce"]), ref.token)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(
                f"tombstone {layout.condemned_ref(name)} is malformed",
                hint="remove that ref; the next collection condemns the object again",
            ) from error
        raise exception.UnsupportedError(f"tombstone {name} has version {version}")


class Tombstones:
    """The tombstones of one origin."""

    def __init__(self, origin: base.Origin) -> None:
        """Use the tombstones in ``origin``."""
        self._origin = origin

    def names(self) -> set[str]:
        """Return the names of all condemned objects."""
        found = map(layout.name_of, self._origin.list_refs(layout.CONDEMNED_PREFIX))
        return {name for name in found if name}

    def find(self, name: str) -> Tombstone | None:
        """Return the tombstone of an object, None when it is not condemned."""
        ref = self._origin.get_ref(layout.condemned_ref(name))
        return Tombstone.parse(name, ref) if ref else None

    def change(self, before: Tombstone | None, after: Tombstone | None) -> bool:
        """Make one transition; return False when someone else was first.

        :raises InternalError: when it is no transition of the table above.
        """
        states = (before.state if before else None, after.state if after else None)
        one = after or before
        if states not in TRANSITIONS or one is None:
            raise exception.InternalError(f"a tombstone does not change so: {states}")
        content = after.encode() if after else None
        token = before.token if before else None
        try:
            self._origin.swap_ref(layout.condemned_ref(one.name), token, content)
        except exception.ConflictError:
            return False
        return True

    def rescue(self, name: str) -> bool:
        """Save an object that a published image refers to from deletion, if it still can be.

        :returns: True when the object is not condemned (any more); False when it is being
            deleted.
        """
        while (tombstone := self.find(name)) is not None:
            if tombstone.state is State.DELETING:
                return False
            self.change(tombstone, None)
        return True
