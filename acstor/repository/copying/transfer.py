"""Copying single objects: read, compared with their digests, stored.

An object is in memory, or in a temporary file where it is large, once for each thread that copies.
"""

import dataclasses
import time
from collections.abc import Callable

from acstor import exception
from acstor.backoff import BackOff
from acstor.origin import base
from acstor.origin.content_buffer import content_buffer
from acstor.repository import layout
from acstor.repository.copying.object_check import UNREADABLE, check_object, size_max

READ_SIZE = 8 << 20
"""Bytes that are read at once."""
COMPARED_SIZE = 128
"""First bytes of log objects that are compared: their header, with the digest of the rest."""
READ_ATTEMPTS = 3
"""Readings of an object that is not what its digests say, before that is believed."""
_BACK_OFF = BackOff(first=0.2, longest=2.0)

Check = Callable[[str, memoryview, base.ObjectStore], None]
"""Compares an object's bytes with its name; raises an error of ``UNREADABLE``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Copied:
    """Outcome for one object."""

    is_copied: bool
    """False: the destination had it."""
    is_replaced: bool = False
    """True if the destination had something else under its name."""
    damage: str | None = None
    """Message: what is wrong with it at the source; it was copied all the same, unless the
    destination has a sound one."""


class Transfer:
    """Copies objects from one store to another.

    :param takes_damaged: whether to store what is not what its digests say, as it is.
    :param wait: how to wait, seconds.
    """

    def __init__(
        self,
        source: base.ObjectStore,
        destination: base.ObjectStore,
        *,
        takes_damaged: bool = False,
        check: Check = check_object,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._source = source
        self._destination = destination
        self._takes_damaged = takes_damaged
        self._check = check
        self._wait = wait

    def copy(self, key: str, size: int) -> Copied:
        """Have the destination hold an object.

        :param size: of the object at the source, bytes.
        :raises CorruptError: and the like (``UNREADABLE``) when the source has it damaged.
        :raises ExhaustedError: when the destination is full.
        :raises UnavailableError: when one of the two cannot be reached.
        """
        found = self._size_there(key)
        if found is not None and self._is_same(key, size, found):
            return Copied(is_copied=False)
        if size > size_max(key):
            raise exception.CorruptError(f"{key} has {size} bytes, more than any such object has")
        content = content_buffer(size)
        damage = self._fetch(key, content)
        if damage is not None and not self._takes_damaged:
            raise damage
        if damage is not None and found is not None and self._is_sound_there(key, found):
            return Copied(is_copied=False, damage=damage.message)
        if found is not None:
            self._destination.delete(key)
        destination: base.ObjectStore = self._destination
        if key.startswith(layout.VOLUME_LOG_PREFIX):
            # Slots are decided in the home: a copy of a record names no other member.
            destination = destination.of_member(None)
        destination.put_if_absent(key, [content])
        return Copied(True, found is not None, None if damage is None else damage.message)

    def verify(self, key: str, size: int) -> None:
        """Read an object back from the destination.

        :param size: of the object at the source, bytes.
        :raises CorruptError: and the like (``UNREADABLE``) when it is not what its name says.
        """
        found = self._destination.size(key)
        if found != size:
            raise exception.CorruptError(f"{key} has {found} bytes instead of {size}")
        content = content_buffer(size)
        self._read(self._destination, key, content)
        self._check(key, content, self._destination)

    def replace(self, key: str, size: int) -> None:
        """Store an object anew that the destination has damaged; errors as those of `copy`."""
        self._destination.delete(key)
        self.copy(key, size)

    def _size_there(self, key: str) -> int | None:
        try:
            return self._destination.size(key)
        except exception.NotFoundError:
            return None
        except exception.CorruptError:
            return -1

    def _is_same(self, key: str, size: int, found: int) -> bool:
        """Return whether the destination's object is the source's.

        Names of packs and manifests are never used twice. Those of log objects are where an origin
        was restored without this command: their headers tell.
        """
        if found != size:
            return False
        if not key.startswith(layout.VOLUME_LOG_PREFIX):
            return True
        length = min(size, COMPARED_SIZE)
        return self._source.get_range(key, 0, length) == self._destination.get_range(key, 0, length)

    def _is_sound_there(self, key: str, found: int) -> bool:
        """Return whether the destination's object is what its name says, as the source's is not.

        Of log objects no name says that: theirs may be of another history.
        """
        if key.startswith(layout.VOLUME_LOG_PREFIX):
            return False
        try:
            self.verify(key, found)
        except UNREADABLE:
            return False
        return True

    def _fetch(self, key: str, content: memoryview) -> exception.AcstorError | None:
        """Read an object; return what is wrong with it."""
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                self._read(self._source, key, content)
                self._check(key, content, self._source)
            except exception.NotFoundError:
                if not self._source.exists(key):
                    raise
                return exception.CorruptError(f"a manifest that {key} is a delta of is missing")
            except UNREADABLE as error:
                if attempt == READ_ATTEMPTS:
                    return error
                self._wait(_BACK_OFF.seconds(attempt))
            else:
                return None
        raise exception.InternalError("no attempt was made")

    @staticmethod
    def _read(store: base.ObjectStore, key: str, content: memoryview) -> None:
        for offset in range(0, len(content), READ_SIZE):
            store.read_exactly(key, offset, content[offset : offset + READ_SIZE])
