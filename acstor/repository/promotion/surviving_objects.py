"""Objects as the members that are left have them: each of the first that has it sound."""

from collections.abc import Iterator, Mapping, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.content_buffer import content_buffer
from acstor.origin.replicated.set_placement import COPIED_FOLDERS
from acstor.repository import layout
from acstor.repository.copying.object_check import UNREADABLE, size_max
from acstor.repository.copying.transfer import Check, Transfer

_VERIFIED_FOLDERS = (layout.MANIFEST_PREFIX, layout.MOVED_PREFIX)
"""Folders of what says where chunks are: compared with its name as a whole before it counts."""


class SurvivingObjects(base.ObjectStore):
    """Objects of several members, which are only read.

    What is in no folder of copies is the first member's alone.

    :param members: stores by name, the new home first.
    :param check: compares objects with their names.
    """

    def __init__(self, members: Mapping[str, base.ObjectStore], check: Check) -> None:
        self._members = members
        self._check = check
        self._home = next(iter(members))
        self._present = {
            name: {key for folder in COPIED_FOLDERS for key in store.list(folder)}
            for name, store in members.items()
        }
        self._chosen: dict[str, str] = {}

    def has(self, key: str) -> bool:
        """Return whether some member has an object."""
        return any(key in present for present in self._present.values())

    def is_lacking(self, key: str) -> bool:
        """Return whether the home has an object not, or not sound, and another member has it."""
        if key in self._present[self._home]:
            return self._chosen.get(key, self._home) != self._home
        return self.has(key)

    def copy(self, key: str) -> None:
        """Have the home hold an object that another member has sound.

        :raises CorruptError: and the like (``UNREADABLE``) when none has it so.
        :raises ExhaustedError: when the home is full.
        """
        error: exception.AcstorError = exception.NotFoundError(f"no other member has {key}")
        for name, store in self._members.items():
            if name == self._home or key not in self._present[name]:
                continue
            try:
                self._transfer(store).copy(key, store.size(key))
            except UNREADABLE as found:
                error = found
                continue
            except exception.UnavailableError as found:
                error = self._damage_of(name, found)
                continue
            self._present[self._home].add(key)
            self._chosen.pop(key, None)
            return
        raise error

    def _transfer(self, source: base.ObjectStore) -> Transfer:
        return Transfer(
            source,
            _Replacing(self._members[self._home], self),
            # What a delta is of may be in another member.
            check=lambda key, content, _: self._check(key, content, self),
        )

    def _damage_of(self, name: str, error: exception.UnavailableError) -> exception.CorruptError:
        """Return what an object that cannot be read is, where its member answers: damaged.

        :raises UnavailableError: when the member does not answer, or the home.
        """
        for one in {name, self._home}:
            try:
                self._members[one].exists(layout.FORMAT_KEY)
            except exception.UnavailableError:
                raise error from None
        return exception.CorruptError(error.message, hint=error.hint)

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self._store_of(key).readinto(key, offset, buffer)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return self._store_of(key).size(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        if not prefix.startswith(COPIED_FOLDERS):
            yield from self._members[self._home].list(prefix)
            return
        everything = set[str]().union(*self._present.values())
        yield from sorted(key for key in everything if key.startswith(prefix))

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store nothing."""
        raise exception.UnsupportedError("what is left is only read")

    def delete(self, key: str) -> bool:
        """Delete nothing."""
        raise exception.UnsupportedError("what is left is only read")

    def _store_of(self, key: str) -> base.ObjectStore:
        if not key.startswith(COPIED_FOLDERS):
            return self._members[self._home]
        if key not in self._chosen:
            self._chosen[key] = self._choose(key)
        return self._members[self._chosen[key]]

    def _choose(self, key: str) -> str:
        """Return the first member that has an object, sound where that is looked at.

        :raises NotFoundError: when none has it.
        :raises CorruptError: and the like when none has it sound.
        """
        having = [name for name, present in self._present.items() if key in present]
        if not having:
            raise exception.NotFoundError(f"no member has {key}")
        if not key.startswith(_VERIFIED_FOLDERS):
            return having[0]
        errors: list[exception.AcstorError] = []
        for name in having:
            try:
                self._verify(self._members[name], key)
            except UNREADABLE as error:
                errors.append(error)
            except exception.UnavailableError as error:
                errors.append(self._damage_of(name, error))
            else:
                return name
        raise errors[0]

    def _verify(self, store: base.ObjectStore, key: str) -> None:
        size = store.size(key)
        if size > size_max(key):
            raise exception.CorruptError(f"{key} has {size} bytes, more than any such object has")
        content = content_buffer(size)
        if size:
            store.read_exactly(key, 0, content)
        self._check(key, content, self)


class _Replacing(base.ObjectStore):
    """The home while it gets objects: what it has unsound under a name is not taken for the same.

    :param home: the store.
    :param survivors: says what is unsound in it.
    """

    def __init__(self, home: base.ObjectStore, survivors: SurvivingObjects) -> None:
        self._home = home
        self._survivors = survivors

    def size(self, key: str) -> int:
        """Return the size of an object in bytes; of one that is unsound, none that fits."""
        found = self._home.size(key)
        return -1 if self._survivors.is_lacking(key) else found

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self._home.readinto(key, offset, buffer)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        return self._home.list(prefix)

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        return self._home.put_if_absent(key, buffers)

    def delete(self, key: str) -> bool:
        """Delete an object."""
        return self._home.delete(key)
