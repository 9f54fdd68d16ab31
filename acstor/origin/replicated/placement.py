"""Members that objects belong to, by the folders of their keys."""

import dataclasses
import hashlib
import threading
from collections.abc import Sequence
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """Members of one object."""

    members: tuple[str, ...]
    """All that shall have it in the end; the first decides who has stored it."""
    copies: int = 1
    """Members that have it before a put returns, 1 to their number (RFD 38, levels)."""
    is_content_named: bool = False
    """True if whoever stores the name stores the same bytes, so that any member may be first."""
    is_moving: bool = False
    """True while it comes to the first member from another one."""
    is_decided: bool = False
    """True if the first member has all that any of them has: what it lacks is nowhere."""
    is_sole: bool = False
    """True if no other member ever has it."""
    is_slot: bool = False
    """True if who stores it has to name its member: it decides there who came first. Any other may
    have a copy."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        :raises ValueError: saying what.
        """
        if not self.members or len(set(self.members)) != len(self.members):
            raise ValueError("an object has no members, or one twice")
        if not 1 <= self.copies <= len(self.members):
            raise ValueError(f"{self.copies} copies in {len(self.members)} members")


class Placement(Protocol):
    """Table of where objects are."""

    def place(self, key: str) -> Placed:
        """Return the members of an object."""


class Assignments:
    """Table from folders to members, the longest folder that a key is in counts.

    An owner of a volume enters its epoch's folder when it begins the epoch, and never changes the
    entry: an epoch has one member.

    :param default: of keys in no folder of the table.
    """

    def __init__(self, default: Placed) -> None:
        self._default = default
        self._lock = threading.Lock()
        self._folders: dict[str, Placed] = {}

    def assign(self, folder: str, placed: Placed | None) -> None:
        """Say where the objects of a folder are from now on.

        :param folder: ends with ``/``.
        :param placed: None: as those of the folder that it is in.
        """
        with self._lock:
            if placed is None:
                self._folders.pop(folder, None)
            else:
                self._folders[folder] = placed

    def place(self, key: str) -> Placed:
        """Return the members of an object."""
        with self._lock:
            folder = key
            while "/" in folder.rstrip("/"):
                folder = folder.rstrip("/").rsplit("/", 1)[0] + "/"
                if folder in self._folders:
                    return self._folders[folder]
        return self._default


def ranked(name: str, members: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the members that hold a content-named object, the first first.

    Source: Thaler, Ravishankar, rendezvous hashing, 1998: a member that comes or goes changes the
    place of its own share of the names only.
    """

    def weight(member: str) -> bytes:
        return hashlib.blake2b(f"{member}/{name}".encode(), digest_size=16).digest()

    return tuple(sorted(members, key=weight, reverse=True)[:count])
