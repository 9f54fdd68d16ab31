"""Condemned objects: tombstones of what garbage collection will delete.

Packs, manifests and what says where packs were moved to have a tombstone each; consecutive log
objects of a volume, of which there are many more, share one. A tombstone is the ref
``gc/condemned/<name>`` and changes by compare-and-swap only::

                 condemn                  seal
    (absent) ---------------> CONDEMNED ---------> DELETING ---> (absent)
        ^                         |                        finish (after the deletion)
        +-------------------------+
             lift or rescue

``condemn``, ``seal``, ``finish`` and ``lift`` are the collector's; ``rescue`` is of those who
register an image, take a snapshot or clone a volume, for what they have published a reference to.
Every tombstone has a nonce, so its token names this condemnation and no earlier or later one. Why
this is safe is in RFD 5 and, for log objects, RFD 8.
"""

import contextlib
import dataclasses
import enum
import json
import re
import secrets

from acstor import exception, untrusted_json
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.volumes.log_range import LogRange

TOMBSTONE_VERSION = 1
GUARD_NAME = "0" * 64
"""Name of a tombstone of no object. Its version makes collectors of releases that do not know
usage records for roots refuse to collect; this one passes it over."""
GUARD_VERSION = 2
HOLD_MARK = "f" * 48
"""First digits of the names of holds (hold.py), which are among the tombstones and are none."""
TIME_MAX = 1e12
"""Latest time that a collector may have seen a tombstone at, seconds since the epoch."""

_LOGS_NAME = re.compile(r"([0-9a-f-]{36})\.([0-9a-f]{8})\.([0-9a-f]{16})\.([0-9a-f]{16})\Z")


def random_nonce() -> str:
    """Return what tells one condemnation from all others."""
    return secrets.token_hex(16)


def name_of_logs(logs: LogRange) -> str:
    """Return the name of the tombstone of log objects."""
    return f"{logs.volume}.{logs.epoch:08x}.{logs.first:016x}.{logs.last:016x}"


def logs_of_name(name: str) -> LogRange | None:
    """Return the log objects that a tombstone of that name is of, None when it is of others."""
    match = _LOGS_NAME.match(name)
    if match is None:
        return None
    try:
        return LogRange(match[1], *(int(number, 16) for number in match.groups()[1:]))
    except ValueError:
        return None


def key_of_logs(logs: LogRange) -> str:
    """Return what stands for a key in the tombstone of log objects: first and last, with a dash."""
    return f"{logs.key(logs.first)}-{logs.last:016x}"


def _keys_of(name: str) -> tuple[str, ...]:
    logs = logs_of_name(name)
    if logs is not None:
        return (key_of_logs(logs),)
    pack = layout.pack_of_moved_name(name)
    if pack is not None:
        return (layout.moved_key(pack),)
    return layout.pack_key(name), layout.manifest_key(name)


def stop_older_collectors(refs: base.RefStore) -> None:
    """Have collectors that do not take usage records for roots refuse this repository.

    :raises UnavailableError: when the origin cannot be reached.
    """
    name = layout.condemned_ref(GUARD_NAME)
    if refs.get_ref(name) is not None:
        return
    reason = "hosts keep manifests by their usage records; run 'acstor gc' of this release"
    content = json.dumps({"version": GUARD_VERSION, "reason": reason}).encode() + b"\n"
    # Where another host was quicker, it is there.
    with contextlib.suppress(exception.ConflictError):
        refs.swap_ref(name, None, content)


class State(enum.StrEnum):
    """State of a condemned object."""

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
        (State.DELETING, State.DELETING),  # another collection goes on with the deletion
        (State.DELETING, None),  # finish
    }
)
"""Every change that a tombstone makes; None: absent."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tombstone:
    """One state of one condemnation."""

    name: str
    """Id of the pack, digest of the manifest, :func:`~acstor.repository.layout.moved_name`, or
    :func:`name_of_logs`."""
    key: str
    """Key of the object; of log objects :func:`key_of_logs`."""
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

    def sealed(self) -> "Tombstone":
        """Return the next state where one collection, and no other, deletes the object."""
        return dataclasses.replace(self, state=State.DELETING, nonce=random_nonce())

    @property
    def logs(self) -> LogRange | None:
        """The condemned log objects; None: it is of a pack or manifest."""
        return logs_of_name(self.name)

    @classmethod
    def parse(cls, name: str, ref: base.Ref) -> "Tombstone":
        """Read a tombstone.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        try:
            fields = untrusted_json.load(ref.content, "a tombstone")
            version = fields["version"]
            if version == TOMBSTONE_VERSION:
                key = fields["key"]
                if key not in _keys_of(name):
                    raise ValueError("key")
                seen = {
                    str(host): untrusted_json.number(time, "a time", -TIME_MAX, TIME_MAX)
                    for host, time in fields["seen"].items()
                }
                state = State(fields["state"])
                return cls(name, key, state, seen, str(fields["nonce"]), ref.token)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(
                f"tombstone {layout.condemned_ref(name)} is malformed",
                hint="remove that ref; the next collection condemns the object again",
            ) from error
        raise exception.UnsupportedError(f"tombstone {name} has version {version!r:.20}")


class Tombstones:
    """The tombstones of one origin."""

    def __init__(self, refs: base.RefStore) -> None:
        """Use the tombstones in ``origin``."""
        self._refs = refs

    def names(self) -> set[str]:
        """Return the names of all tombstones."""
        found = set()
        for ref_name in self._refs.list_refs(layout.CONDEMNED_PREFIX):
            name = ref_name.removeprefix(layout.CONDEMNED_PREFIX)
            is_object = layout.name_of(name) == name and not (
                name == GUARD_NAME or name.startswith(HOLD_MARK)
            )
            is_moved = layout.pack_of_moved_name(name) is not None
            if is_object or is_moved or logs_of_name(name) is not None:
                found.add(name)
        return found

    def find(self, name: str) -> Tombstone | None:
        """Return the tombstone of an object, None when it is not condemned."""
        ref = self._refs.get_ref(layout.condemned_ref(name))
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
            self._refs.swap_ref(layout.condemned_ref(one.name), token, content)
        except exception.ConflictError:
            return False
        return True

    def rescue(self, name: str) -> bool:
        """Save what a published ref refers to from deletion, if it still can be.

        :param name: of the tombstone.
        :returns: True when the object is not condemned (any more); False when it is being
            deleted.
        """
        while (tombstone := self.find(name)) is not None:
            if tombstone.state is State.DELETING:
                return False
            self.change(tombstone, None)
        return True
