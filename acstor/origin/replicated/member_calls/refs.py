"""The refs of a member, by calls that have the member's deadline."""

from collections.abc import Iterator

from acstor.origin import base
from acstor.origin.doorbell import Doorbell
from acstor.origin.replicated.member import Member


class MemberRefs(base.RefStore):
    """Refs of one member; one that hangs is *unavailable* after its time.

    :param member: whose they are.
    """

    def __init__(self, member: Member) -> None:
        self._member = member

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        return self._member.call(lambda origin: origin.get_ref(name))

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state, ``known`` itself where it still is in that one."""
        return self._member.call(lambda origin: origin.refresh_ref(name, known))

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        return self._member.call(lambda origin: origin.swap_ref(name, expected, content))

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        yield from self._member.walk(lambda origin: tuple(origin.list_refs(prefix)))

    def doorbell(self) -> Doorbell | None:
        """Return the doorbell of the store, as it is: ringing it has the store's own deadline."""
        return self._member.call(lambda origin: origin.doorbell())

    @property
    def needs_locks(self) -> bool:
        """As the store."""
        return self._member.call(lambda origin: origin.needs_locks)

    def convert_refs(self) -> bool:
        """Convert the refs, which walks all of them."""
        return self._member.walk(lambda origin: origin.convert_refs())
