"""Deletions that are owed to members that sleep: tombstones that outlive the sleep.

Each is an object of the home, ``owed-deletions/<member>/<SHA-256 of the key>``, whose content is
the key. It is stored before the object is deleted anywhere, and removed after the member has lost
the object, or where the home has it again: what is named by its content is the same object then.
So a process may die between any two of these steps, and each may be repeated.
"""

import functools
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.view import MembersView

LOG = logging.getLogger(__name__)

OWED_PREFIX = "owed-deletions/"
"""Folder of the notes in the home."""
KEY_SIZE_MAX = 4096
"""Longest content of a note, bytes."""
KEPT_SECONDS = 3600.0
"""Time for which a note of what the home still has is kept: its deletion may be under way."""


def note_key(member: str, key: str) -> str:
    """Return the key of the note that a deletion is owed to a member."""
    return f"{OWED_PREFIX}{member}/{hashlib.sha256(key.encode()).hexdigest()}"


class Sleepers(Protocol):
    """Members of an origin, some of which have slept."""

    @property
    def members(self) -> Mapping[str, Member]:
        """All by name."""

    @property
    def view(self) -> MembersView:
        """Knowledge of the home, and of who sleeps."""


class NotOwed:
    """Says of a key whether no member owes its deletion: copied meanwhile, the name came back.

    Between the tombstone of a collection, which goes when the object is deleted, and the deletion
    in a member that slept the note is all that tells.

    :param origin: the members.
    :param is_wanted: asked, too.
    """

    def __init__(self, origin: Sleepers, is_wanted: Callable[[str], bool]) -> None:
        self._origin = origin
        self._is_wanted = is_wanted

    def __call__(self, key: str) -> bool:
        """Return whether it may be copied.

        :raises UnavailableError: when that cannot be told.
        """
        view = self._origin.view
        home = self._origin.members[view.home]
        notes = [note_key(name, key) for name in view.power.members]
        if any(home.call(functools.partial(_has, note)) for note in notes):
            return False
        return self._is_wanted(key)


class OwedDeletions:
    """Makes up for deletions that members have slept through.

    :param home: has the notes.
    :param member: returns a member that is awake, by its name.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        home: Member,
        member: Callable[[str], Member],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home
        self._member = member
        self._clock = clock
        self._kept: dict[str, float] = {}

    def settle(self, awake: Collection[str], used: Collection[str]) -> dict[str, int]:
        """Make up for what is owed to members that are awake; return what is left, by member.

        What the home still has counts not as left: nobody waits for it.

        :param awake: members from which can be deleted.
        :param used: all members; notes of others are removed.
        :raises UnavailableError: when the home or a member that is awake cannot be asked.
        """
        left: dict[str, int] = {}
        notes = sorted(self._home.list(OWED_PREFIX))
        self._kept = {note: at for note, at in self._kept.items() if note in notes}
        for note in notes:
            name = note.removeprefix(OWED_PREFIX).partition("/")[0]
            if name not in used:
                self._remove(note)
            elif name not in awake:
                left[name] = left.get(name, 0) + 1
            else:
                self._settle(name, note)
        return left

    def _settle(self, name: str, note: str) -> None:
        try:
            key = self._key(note)
        except exception.NotFoundError:
            return  # another process that led has settled it
        except exception.CorruptError as error:
            LOG.error("note %s: %s", note, exception.one_line(error))
            self._remove(note)
            return
        if self._home.call(functools.partial(_has, key)):
            since = self._kept.setdefault(note, self._clock())
            if self._clock() - since >= KEPT_SECONDS:
                self._remove(note)
            return
        self._member(name).call(lambda origin: origin.delete(key))
        self._remove(note)

    def _key(self, note: str) -> str:
        content = self._home.call(lambda origin: origin.get(note, KEY_SIZE_MAX))
        try:
            key = keys.validate_key(content.decode())
        except (UnicodeDecodeError, exception.InvalidError) as error:
            raise exception.CorruptError(f"it names no object: {error}") from error
        if hashlib.sha256(content).hexdigest() != note.rsplit("/", 1)[1]:
            raise exception.CorruptError("it is damaged; the object is garbage if it is there")
        return key

    def _remove(self, note: str) -> None:
        self._home.call(lambda origin: origin.delete(note))
        self._kept.pop(note, None)


def _has(key: str, origin: base.ObjectStore) -> bool:
    return origin.exists(key)
