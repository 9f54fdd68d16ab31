"""The store of one member, for what is decided there: slots of a volume's log."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.replicated.finding import PowerOf, always_on
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.member_calls.objects import MemberObjects
from acstor.origin.replicated.power.states import ASKED

Noted = Callable[[str, str, int], None]
"""Takes the member, the key and the size, bytes, of what was stored and is owed to others."""


class MemberStore(base.ObjectStore):
    """Objects of one member: no other one is ever asked, whatever this one says.

    :param members: all whose answers count; may change at any time.
    :param name: of the member.
    :param noted: is told of what is stored.
    :param power: a member that sleeps is not asked.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        name: str,
        noted: Noted,
        power: PowerOf = always_on,
    ) -> None:
        self._members = members
        self._name = name
        self._noted = noted
        self._power = power
        self._store()

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object in this member.

        Without an answer it may be there all the same: repeated, it is noted then.
        """
        content = b"".join(base.as_views(buffers))
        is_new = self._store().put_if_absent(key, [content])
        if len(self._members) > 1:
            self._noted(self._name, key, len(content))
        return is_new

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self._store().readinto(key, offset, buffer)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return self._store().size(key)

    def get(self, key: str, size_max: int) -> bytes:
        """Return a whole object, in one call of the member."""
        self._store()
        return self._members[self._name].call(lambda origin: origin.get(key, size_max))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        return self._store().list(prefix)

    def delete(self, key: str) -> bool:
        """Delete nothing: what is deleted is deleted from all members."""
        raise exception.UnsupportedError(f"{key} is not deleted from one member alone")

    def _store(self) -> MemberObjects:
        """Return the member's objects.

        :raises UnavailableError: when it is not in use: given up, taken away, or never known.
        """
        if self._name not in self._members:
            raise exception.UnavailableError(
                f"member {self._name} of the origin is not in use",
                hint="'acstor origin list' shows its state; no other one is asked in its place",
            )
        power = self._power(self._name)
        if power not in ASKED:
            raise exception.UnavailableError(
                f"member {self._name} of the origin is {power.value}",
                hint=f"wake it: 'acstor origin wake {self._name}'; no other one is asked in its "
                "place",
            )
        return MemberObjects(self._members[self._name])
