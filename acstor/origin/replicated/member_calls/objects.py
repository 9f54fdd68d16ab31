"""The objects of a member, by calls that have the member's deadline."""

from collections.abc import Iterator, Sequence

from acstor.origin import base
from acstor.origin.replicated.member import Member


class MemberObjects(base.ObjectStore):
    """Objects of one member; one that hangs is *unavailable* after its time.

    :param member: whose they are.
    """

    def __init__(self, member: Member) -> None:
        self._member = member

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        size = len(buffer)

        def read(origin: base.Origin) -> bytes:
            # Not into the caller's memory: a call that is late goes on (Member).
            part = bytearray(size)
            return bytes(part[: origin.readinto(key, offset, memoryview(part))])

        found = self._member.call(read)
        buffer[: len(found)] = found
        return len(found)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return self._member.call(lambda origin: origin.size(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        yield from self._member.list(prefix)

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        return self._member.put(key, b"".join(buffers))

    def delete(self, key: str) -> bool:
        """Delete an object."""
        return self._member.call(lambda origin: origin.delete(key))

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield those keys in the folder ``prefix`` that hosts cannot delete."""
        yield from self._member.walk(lambda origin: tuple(origin.list_protected(prefix)))

    def is_protected(self, key: str) -> bool:
        """Return whether there is such an object that hosts cannot delete."""
        return self._member.call(lambda origin: origin.is_protected(key))

    def remove_folder(self, prefix: str) -> bool:
        """Remove a folder without objects."""
        return self._member.call(lambda origin: origin.remove_folder(prefix))

    def space(self) -> base.Space | None:
        """Return how much room there is for objects."""
        return self._member.call(lambda origin: origin.space())
