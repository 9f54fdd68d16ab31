"""Members of the origin as the data plane reads them (RFD 38)."""

import functools
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from acstor import exception
from acstor.dataplane.origin_source import LastMember, OriginSource, source_of
from acstor.dataplane.runtime import OriginReader
from acstor.native import RadosReader
from acstor.origin.base import RefStore
from acstor.origin.replicated.member_records import MembersRecord, read_mark
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.states import USED

LOG = logging.getLogger(__name__)


class _Refs:
    """Refs of a store that is opened when they are first read.

    :param open_refs: opens them.
    """

    def __init__(self, open_refs: Callable[[], RefStore]) -> None:
        self._open = open_refs
        self._lock = threading.Lock()
        self._refs: RefStore | None = None

    def get(self) -> RefStore:
        """Return them.

        :raises AcstorError: when they cannot be opened.
        """
        with self._lock:
            if self._refs is None:
                self._refs = self._open()
            return self._refs


@dataclass(frozen=True)
class MemberReader:
    """One member; exactly one of ``posix_root`` and ``reader`` is set."""

    name: str
    generation: int
    """Generation that the home knows; the data plane reads the member with it, or the next."""
    is_assigned: bool
    """True if it is asked before those that are not."""
    posix_root: str | None
    reader: OriginReader | None
    origin: str
    """UUID of the origin that it is a member of."""
    home: str
    refs: _Refs = field(repr=False, compare=False)
    asleep: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    """Set while the member sleeps: its generation is then not known, so that it is not read."""

    def read_generation(self) -> int:
        """Return the generation that the store carries; one that sleeps is not touched.

        :raises UnavailableError: when it sleeps.
        :raises FencedError: when the store is no member, or another one.
        :raises AcstorError: when it cannot be read.
        """
        if self.asleep.is_set():
            raise exception.UnavailableError(f"member {self.name} sleeps")
        mark, _ = read_mark(self.refs.get())
        if mark is None or (mark.origin, mark.name, mark.home) != (
            self.origin,
            self.name,
            self.home,
        ):
            found = "no member" if mark is None else f"member {mark.name} of origin {mark.origin}"
            raise exception.FencedError(
                f"the store configured as {self.name} is {found}",
                hint="check its URL and that its file system is mounted",
            )
        return mark.generation


def open_members(
    addresses: Sequence[MemberAddress],
    record: MembersRecord,
    assigned: Collection[str],
    deadline_seconds: float,
    open_refs: Callable[[str], RefStore],
) -> OriginSource:
    """Return the members of an origin that may have objects, in the order of the configuration.

    Those that are removed or failed, and those that have not joined yet, are left out. Where one is
    left, it is read as any origin is; nothing is stored in it past Python, as others may join.

    :param addresses: all members that the configuration names.
    :param record: what the home says of them.
    :param assigned: names of those that shall have what this host reads.
    :param deadline_seconds: of a call of a member that is not read natively.
    :param open_refs: opens the refs of the store at a URL, when its generation is first read.
    :raises AcstorError: when a member's reader cannot be made.
    """
    readers: list[MemberReader] = []
    for one in addresses:
        entry = record.members.get(one.name)
        if entry is None:
            LOG.warning("%s, which [origin] members names, is no member yet: not read", one.name)
            continue
        if entry.state not in USED:
            continue
        source = source_of(one.url, deadline_seconds)
        readers.append(
            MemberReader(
                name=one.name,
                generation=entry.generation,
                is_assigned=one.name in assigned,
                posix_root=source.posix_root,
                reader=source.reader,
                origin=record.origin,
                home=record.home,
                refs=_Refs(functools.partial(open_refs, one.url)),
            )
        )
    known = {one.name for one in addresses}
    for name, entry in record.members.items():
        if entry.state in USED and name not in known:
            readers.append(_not_configured(name, entry.generation, record))
    if len(readers) == 1:
        reader = readers[0].reader
        if isinstance(reader, RadosReader):
            reader = LastMember(reader)
        return OriginSource(readers[0].posix_root, reader)
    return OriginSource(None, None, tuple(readers))


class _NotConfigured:
    """Stands for a member that this host's configuration lacks: what it has is not known.

    So nothing that no other member has is taken for absent.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read nothing."""
        raise exception.UnavailableError(
            f"member {self._name} of the origin is not in [origin] members of this host",
            hint=f"add {self._name}=URL there and restart the data plane",
        )


def _not_configured(name: str, generation: int, record: MembersRecord) -> MemberReader:
    def refuse() -> RefStore:
        raise exception.UnavailableError(f"member {name} is not configured on this host")

    return MemberReader(
        name=name, generation=generation, is_assigned=False, posix_root=None,
        reader=_NotConfigured(name), origin=record.origin, home=record.home, refs=_Refs(refuse),
    )  # fmt: skip
