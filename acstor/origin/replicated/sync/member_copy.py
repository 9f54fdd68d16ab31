"""Copies of single objects from one member to another, never through a host.

A copy that was cut off anywhere is made again from its beginning; one that is complete is found and
not made twice. Nothing in the target is ever replaced: a slot of a log that holds something else is
a contradiction, which is told and left as it is.
"""

import enum
import hashlib
import random
import time
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.origin import base
from acstor.origin.content_buffer import content_buffer
from acstor.origin.replicated.objects import ReplicatedObjects
from acstor.origin.replicated.sync.budget import SyncBudget
from acstor.origin.replicated.sync.pairs import Pair

READ_SIZE = 8 << 20
"""Bytes that are read at once, and paid for."""
COMPARED_SIZE = 128
"""First bytes by which objects of one size are told apart: log objects have their digest there."""
OBJECT_SIZE_MAX = (4 << 30) + (512 << 20)
"""Largest object, bytes: a pack of 4 GiB of chunks with its header and table."""
VERIFIED_SHARE = 0.02
"""Share of the copies that are read back: what stores reported is there, as their contract says."""

Check = Callable[[str, memoryview, base.ObjectStore], None]
"""Compares an object's bytes with its name; raises :class:`~acstor.exception.CorruptError`."""


class Outcome(enum.StrEnum):
    """Outcome of a copy; a label of the counters."""

    COPIED = "copied"
    THERE = "there"
    """The target had it."""
    GONE = "gone"
    """The source does not have it: it was never stored, or was collected meanwhile."""
    DAMAGED = "damaged"
    """No member has it as its name says."""
    CONFLICT = "conflict"
    """The target has something else by that name, or does not give back what it stored."""


SETTLED = frozenset({Outcome.COPIED, Outcome.THERE, Outcome.GONE})
"""Outcomes after which nothing is owed any more."""


class MemberCopy:
    """Copies objects between members.

    :param objects: the members, and where objects are.
    :param budgets: of each member that can be asked; both members of a copy pay.
    :param check: compares objects with their names, where a name says something.
    :param is_wanted: says of a key whether it may be copied: not what is being deleted.
    :param verified_share: of the copies that are read back, 0 to 1.
    :param wait: how to wait, seconds.
    """

    def __init__(
        self,
        objects: ReplicatedObjects,
        budgets: Mapping[str, SyncBudget],
        check: Check,
        *,
        is_wanted: Callable[[str], bool] = lambda key: True,
        verified_share: float = VERIFIED_SHARE,
        choice: random.Random | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._objects = objects
        self._members = objects.members
        self._budgets = budgets
        self._check = check
        self._is_wanted = is_wanted
        self._verified_share = verified_share
        self._choice = choice or random.Random()
        self._wait = wait

    def copy(self, pair: Pair, key: str) -> tuple[Outcome, int]:
        """Have the target hold an object; return what became of it, and the bytes copied.

        Where the source has it damaged, any other member that has it sound gives it.

        :raises ExhaustedError: when the target is full.
        :raises UnavailableError: when one of the two cannot be asked.
        """
        # What is condemned is deleted after a grace period that is longer than any copy.
        size = self._size(pair.source, key) if self._is_wanted(key) else None
        if size is None:
            return Outcome.GONE, 0
        found = self._size(pair.target, key)
        if found is not None:
            is_same = found == size and self._head(pair.source, key, size) == (
                self._head(pair.target, key, size)
            )
            return (Outcome.THERE if is_same else Outcome.CONFLICT), 0
        content = self._sound(pair, key, size)
        if content is None:
            return Outcome.DAMAGED, 0
        if self._size(pair.source, key) is None:
            return Outcome.GONE, 0  # deleted while it was read: its name is not to come back
        self._pay((pair.target,), len(content))
        is_new = self._members[pair.target].put(key, content)
        is_verified = not is_new or self._choice.random() < self._verified_share
        if is_verified and not self._has(pair.target, key, content):
            return Outcome.CONFLICT, 0
        return (Outcome.COPIED, len(content)) if is_new else (Outcome.THERE, 0)

    def _sound(self, pair: Pair, key: str, size: int) -> memoryview | None:
        """Return an object's bytes as its name says, None where no member has such."""
        others = [name for name in self._budgets if name not in pair]
        for name in (pair.source, *others):
            found = size if name == pair.source else self._size(name, key)
            if found is None:
                continue
            try:
                content = self._read(name, key, found)
                self._check(key, content, self._objects)
            except exception.CorruptError:
                continue
            return content
        return None

    def _read(self, name: str, key: str, size: int) -> memoryview:
        if size > OBJECT_SIZE_MAX:
            raise exception.CorruptError(
                f"{key} has {size} bytes in member {name}, more than any object has"
            )
        content = content_buffer(size)
        for offset in range(0, size, READ_SIZE):
            count = min(READ_SIZE, size - offset)
            self._pay((name,), count)
            content[offset : offset + count] = self._piece(name, key, offset, count)
        return content

    def _has(self, name: str, key: str, content: memoryview) -> bool:
        """Return whether a member has these bytes by that name."""
        if self._size(name, key) != len(content):
            return False
        return _digest_of(self._read(name, key, len(content))) == _digest_of(content)

    def _head(self, name: str, key: str, size: int) -> bytes:
        return self._piece(name, key, 0, min(size, COMPARED_SIZE))

    def _piece(self, name: str, key: str, offset: int, count: int) -> bytes:
        return self._members[name].call(lambda origin: origin.get_range(key, offset, count))

    def _size(self, name: str, key: str) -> int | None:
        try:
            return self._members[name].call(lambda origin: origin.size(key))
        except exception.NotFoundError:
            return None

    def _pay(self, names: tuple[str, ...], size_bytes: int) -> None:
        seconds = max(self._budgets[name].take(size_bytes) for name in names)
        if seconds > 0:
            self._wait(seconds)


def _digest_of(content: memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()
