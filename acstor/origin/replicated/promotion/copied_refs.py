"""The refs of a home that is lost, as a member has copies of them."""

import hashlib
from collections.abc import Iterator, Mapping

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.replicated import ref_copy


class CopiedRefs(base.RefStore):
    """Refs as the copies in a member have them; they cannot be changed.

    Differs from the refs of a home: copies of several refs need not be of one moment.

    :param copies: contents by the names of the refs.
    """

    def __init__(self, copies: Mapping[str, bytes]) -> None:
        self._copies = copies

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref as it was copied."""
        content = self._copies.get(keys.validate_ref_name(name))
        if content is None:
            return None
        return base.Ref(hashlib.sha256(content).hexdigest(), content)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Refuse: a copy is of what was.

        :raises UnsupportedError: always.
        """
        del expected, content
        raise exception.UnsupportedError(f"a copy of ref {name} is not changed")

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        yield from sorted(name for name in self._copies if name.startswith(prefix))


def read_copies(member: base.RefStore) -> tuple[dict[str, bytes], int]:
    """Return the refs that a member has sound copies of, and the number of damaged copies.

    :raises UnavailableError: when the member cannot be reached.
    :raises UnsupportedError: when a newer release made the copies.
    """
    found: dict[str, bytes] = {}
    damaged = 0
    for name in list(member.list_refs(ref_copy.COPIES_PREFIX)):
        try:
            ref = member.get_ref(name)
            copy = None if ref is None else ref_copy.parse(ref.content)
        except exception.CorruptError:
            damaged += 1
            continue
        if copy is None:
            continue
        if ref_copy.copy_name(copy.name) == name:
            found[copy.name] = copy.content
        else:
            damaged += 1
    return found, damaged
