"""The store of objects over several members.

Each key is stored in the members that it is assigned to, and is read from whichever has it. A
member that cannot be asked makes an answer *unavailable*, never *not found*: what it has is not
known (RFD 38, *Where objects are*).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.replicated.finding import Fault, Finder, PowerOf, always_on
from acstor.origin.replicated.logs.member_store import MemberStore, Noted
from acstor.origin.replicated.logs.near_placement import NearPlacement
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.placement import Placed, Placement
from acstor.origin.replicated.power import owed_deletions
from acstor.origin.replicated.power.states import ASKED
from acstor.origin.replicated.search import Absence

Answer = TypeVar("Answer")
Check = Callable[[str, bytes], None]
"""Compares a whole object with its name; raises :class:`~acstor.exception.CorruptError`."""
SPACE_KEY = "packs/0"
"""Key of an object like those that take most of the room."""
HOME_KEY = "format"
"""Key of an object that the home has, and no other member."""


def accept(key: str, content: bytes) -> None:
    """Take an object as it is: nothing is known of what its name says."""


class ReplicatedObjects(base.ObjectStore):
    """Objects in several members.

    :param members: by name, in the order of the configuration; may change at any time.
    :param placement: says where each key belongs.
    :param check: compares whole objects that :meth:`get` returns with their names.
    :param noted: is told of what is stored in one member and owed to others.
    :param power: members that sleep are not asked; what is deleted meanwhile is owed to them.
    :param counted: has the counters, where others read the same objects; None: they are new.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        placement: Placement,
        *,
        check: Check = accept,
        noted: Noted = lambda member, key, size: None,
        power: PowerOf = always_on,
        counted: Finder | None = None,
    ) -> None:
        self._power = power
        self.members = members
        self._placement = placement
        self._check = check
        self._noted = noted
        self._finder = Finder(members, placement, power, counted)

    @property
    def faults(self) -> Counter[tuple[str, Fault]]:
        """Reads and puts that another member has served, by member and reason."""
        return self._finder.faults

    @property
    def absences(self) -> Counter[Absence]:
        """Meanings of *not found*, as often as each was found out."""
        return self._finder.absences

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object in its first member, and in as many as its level demands.

        The first member decides who has stored it. Of what is named by its content another one may
        take it where the first cannot: then the answer is False, as nobody knows whether the first
        had it.

        :raises ConflictError: when the first member has these bytes, and one of the others that
            have to have them has others: who took over has occupied the name there.
        :raises InternalError: for a slot of a log: who stores it has to name its member.
        """
        keys.validate_key(key)
        placed = self._placement.place(key)
        if placed.is_slot:
            raise exception.InternalError(f"{key} is a slot of a log, and no member was named")
        content = b"".join(base.as_views(buffers))
        stored, is_new = self._store_first(key, content, placed)
        if placed.copies > 1 and (is_new or self._has(stored, key, content)):
            self._store_copies(key, content, placed, stored)
        if len(placed.members) > placed.copies or stored != placed.members[0]:
            self._noted(stored, key, len(content))
        return is_new

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from the best member that has the object."""
        keys.validate_key(key)
        size = len(buffer)

        def read(origin: base.Origin) -> memoryview:
            scratch = memoryview(bytearray(size))
            return scratch[: origin.readinto(key, offset, scratch)]

        part = self._finder.find(key, read)
        buffer[: len(part)] = part
        return len(part)

    def read_exactly(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer``; a member whose object ends too early is passed over."""
        keys.validate_key(key)
        view = buffer.cast("B") if buffer.format != "B" or buffer.ndim != 1 else buffer
        size = len(view)
        view[:] = self._finder.find(key, lambda origin: origin.get_range(key, offset, size))

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None = None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges, those of one member at once."""
        return self._finder.read_many(ranges, deadline_seconds)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        keys.validate_key(key)
        return self._finder.find(key, lambda origin: origin.size(key))

    def get(self, key: str, size_max: int) -> bytes:
        """Return a whole object; a member whose bytes its name refuses is passed over."""
        keys.validate_key(key)

        def read(origin: base.Origin) -> bytes:
            content = origin.get(key, size_max)
            self._check(key, content)
            return content

        return self._finder.find(key, read)

    def is_protected(self, key: str) -> bool:
        """Return whether the first member has it so that hosts cannot delete it.

        Copies are made by controllers, whoever stored what they are of.
        """
        keys.validate_key(key)
        first = self._placement.place(key).members[0]
        return self.members[first].call(lambda origin: origin.is_protected(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that are in any member that is awake; each once.

        Of a folder of which one member has everything that one alone is asked. A member sleeps only
        once all that it has is elsewhere, so that what it alone has was deleted meanwhile.

        :raises UnavailableError: when one of them cannot be asked: what it has is not known.
        """
        keys.validate_prefix(prefix)
        placed = self._placement.place(prefix) if prefix else None
        if placed is not None and placed.is_decided:
            yield from self.members[placed.members[0]].list(prefix)
            return
        yield from self._union(lambda origin: set(origin.list(prefix)))

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield the keys that the first member has so that hosts cannot delete them."""
        keys.validate_prefix(prefix)
        member = self.members[self._placement.place(prefix).members[0]]
        yield from member.walk(lambda origin: tuple(origin.list_protected(prefix)))

    def delete(self, key: str) -> bool:
        """Delete an object from all members, from the one that decides last.

        Members that sleep are told of it before they are in use again (:mod:`.owed_deletions`).

        :raises UnavailableError: when one of them cannot be asked; then it is still where it was
            decided, and the caller has to repeat the call.
        """
        keys.validate_key(key)
        placed = self._placement.place(key)
        first = placed.members[0]
        # Told once: one that wakes in between is either asked, or owes it.
        asleep = () if placed.is_sole else self._asleep()
        self._owe_deletion(key, asleep)
        names = placed.members if placed.is_sole else tuple(self.members)
        others = [self.members[name] for name in names if name != first and name not in asleep]
        found = [member.call(lambda origin: origin.delete(key)) for member in others]
        return self.members[first].call(lambda origin: origin.delete(key)) or any(found)

    def remove_folder(self, prefix: str) -> bool:
        """Remove a folder without objects from all members."""
        keys.validate_prefix(prefix)
        holders = self._holders(self._placement.place(prefix))
        found = [member.call(lambda origin: origin.remove_folder(prefix)) for member in holders]
        return any(found)

    def space(self) -> base.Space | None:
        """Return the room of the member in which what is stored next is put first."""
        first = self._placement.place(SPACE_KEY).members[0]
        return self.members[first].call(lambda origin: origin.space())

    def sweep(self) -> int:
        """Remove leftovers from all members."""
        return sum(self._ask_all(lambda origin: origin.sweep(), is_listing=True))

    def close(self) -> None:
        """Close all members."""
        for member in self.members.values():
            member.close()

    # Storing

    def _store_first(self, key: str, content: bytes, placed: Placed) -> tuple[str, bool]:
        """Store an object in one member; return its name, and whether it is new there."""
        names = placed.members if placed.is_content_named else placed.members[:1]
        for name in names:
            try:
                is_new = self._put(name, key, content)
            except (exception.UnavailableError, exception.OverloadedError):
                self._finder.count(name, Fault.UNREACHABLE)
                if name == names[-1]:
                    raise
            except exception.ExhaustedError:
                self._finder.count(name, Fault.FULL)
                if name == names[-1]:
                    raise
            else:
                return name, is_new and name == placed.members[0]
        raise exception.InternalError(f"no member was asked to store {key}")

    def _store_copies(self, key: str, content: bytes, placed: Placed, stored: str) -> None:
        """Store an object in as many further members as its level demands.

        Slots go to the members in their order, as an owner that is fenced is to find that out
        (RFD 38, rules of ``strong``); of what is named by its content any members do.
        """
        count = 1
        failure: exception.AcstorError | None = None
        for name in placed.members:
            if name == stored or count == placed.copies:
                continue
            try:
                self._store_copy(name, key, content, stored)
            except (
                exception.UnavailableError,
                exception.OverloadedError,
                exception.ExhaustedError,
            ) as error:
                if not placed.is_content_named:
                    raise
                failure = error
            else:
                count += 1
        if failure is not None and count < placed.copies:
            raise failure

    def _store_copy(self, name: str, key: str, content: bytes, stored: str) -> None:
        if not self._put(name, key, content) and not self._has(name, key, content):
            raise exception.ConflictError(
                f"member {name} has another object {key} than {stored} has",
                hint="another owner has ended this epoch: look at the record",
            )

    def _put(self, name: str, key: str, content: bytes) -> bool:
        return self.members[name].put(key, content)

    def _has(self, name: str, key: str, content: bytes) -> bool:
        """Return whether a member has these bytes under the name."""

        def compare(origin: base.Origin) -> bool:
            return origin.size(key) == len(content) and (
                origin.get_range(key, 0, len(content)) == content
            )

        return self.members[name].call(compare)

    def of_member(self, name: str | None) -> base.ObjectStore:
        """Return the store of one member alone."""
        return MemberStore(self.members, name or self._home, self._noted, self._power)

    def near_member(self, name: str | None) -> base.ObjectStore:
        """Return the same objects, those of logs from one member before others."""
        return ReplicatedObjects(
            self.members,
            NearPlacement(self._placement, name or self._home),
            check=self._check,
            noted=self._noted,
            power=self._power,
            counted=self._finder,
        )

    @property
    def _home(self) -> str:
        return self._placement.place(HOME_KEY).members[0]

    def _union(self, action: Callable[[base.Origin], set[str]]) -> Iterator[str]:
        found: set[str] = set()
        for keys_there in self._ask_all(action, is_listing=True):
            found |= keys_there
        yield from found

    def _ask_all(
        self, action: Callable[[base.Origin], Answer], *, is_listing: bool = False
    ) -> Sequence[Answer]:
        """Return the answers of all members.

        :param is_listing: True if each walks all objects that it has.
        """
        return [
            member.walk(action) if is_listing else member.call(action) for member in self._awake()
        ]

    def _awake(self) -> Sequence[Member]:
        return [self.members[name] for name in tuple(self.members) if self._power(name) in ASKED]

    def _asleep(self) -> tuple[str, ...]:
        return tuple(name for name in tuple(self.members) if self._power(name) not in ASKED)

    def _owe_deletion(self, key: str, asleep: Sequence[str]) -> None:
        """Note a deletion for each member that sleeps, before anything is deleted."""
        for name in asleep:
            note = owed_deletions.note_key(name, key)
            self._put(self._placement.place(note).members[0], note, key.encode())

    def _holders(self, placed: Placed) -> Sequence[Member]:
        """Return the members awake that may have an object that is placed so."""
        if placed.is_sole:
            return [self.members[name] for name in placed.members]
        return self._awake()
