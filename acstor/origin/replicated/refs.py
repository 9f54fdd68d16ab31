"""The home of the refs, and the copies of them in other members.

Refs are read and swapped in the home, in nothing else: it is linearisable as it is one store. The
copies are for an operator who has lost the home. They are under names of their own, so that no
program takes them for refs, and nothing here ever reads them as such (RFD 38, *Home of refs*).
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping

from acstor import exception
from acstor.origin import base
from acstor.origin.doorbell import Doorbell
from acstor.origin.replicated import ref_copy
from acstor.origin.replicated.ref_copy import RefCopy

COMPLETE_PASS_EVERY = 60
"""Passes of which one reads all copies back: a process that led before may have written late."""


class HomeRefs(base.RefStore):
    """The refs of the home.

    :param home: the store; whoever opened it closes it.
    """

    def __init__(self, home: base.RefStore) -> None:
        self._home = home

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        return self._home.get_ref(name)

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state, ``known`` itself where it still is in that one."""
        return self._home.refresh_ref(name, known)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        return self._home.swap_ref(name, expected, content)

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        return self._home.list_refs(prefix)

    def freeing(self, *, is_beginning: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return the home's context."""
        return self._home.freeing(is_beginning=is_beginning)

    def doorbell(self) -> Doorbell | None:
        """Return the home's doorbell."""
        return self._home.doorbell()

    @property
    def needs_locks(self) -> bool:
        """As the home."""
        return self._home.needs_locks

    def convert_refs(self) -> bool:
        """Convert the home's refs."""
        return self._home.convert_refs()


@dataclasses.dataclass(frozen=True, slots=True)
class RefLag:
    """Distance between the refs and their copies in one member."""

    refs: int
    """Refs that differed from their copies when the last pass ended."""
    age_seconds: float | None
    """Seconds since the beginning of the last pass that left nothing out; None: there was none."""
    error: str = ""
    """Reason for which the last pass left something out."""


class RefCopier:
    """Copies refs from the home to other members, one pass after the other.

    The process that leads the synchronisation has one. What another one that led before still
    writes is mended by the next complete pass.

    :param home: of the refs.
    :param members: the other members by name.
    :param clock: monotonic seconds.
    :param is_ready: says of a member, and of a ref's name and content, whether the member has what
        the ref names. Until then it keeps the copy of before, whose objects it has.
    """

    def __init__(
        self,
        home: base.RefStore,
        members: Mapping[str, base.RefStore],
        clock: Callable[[], float] = time.monotonic,
        is_ready: Callable[[str, str, bytes], bool] = lambda member, name, content: True,
    ) -> None:
        self._home = home
        self._members = members
        self._clock = clock
        self._is_ready = is_ready
        self.waiting: set[tuple[str, str, str]] = set()
        """Copies of before that the last pass has kept: member, ref, and token of its state."""
        self._refs: dict[str, base.Ref] = {}
        self._copied: dict[str, dict[str, str]] = {name: {} for name in members}
        """Of each member the tokens of the states that its copies are of."""
        self._completed_at: dict[str, float] = {}
        self._passes = 0
        self._lags: dict[str, RefLag] = {name: RefLag(0, None) for name in members}

    def copy(self) -> Mapping[str, RefLag]:
        """Make a pass, and return the lag of each member after it.

        A member that cannot be reached or is full keeps its copies, and lags.

        :raises UnavailableError: when the home cannot be read; the copies stay as they are.
        """
        begun = self._clock()
        if self._passes % COMPLETE_PASS_EVERY == 0:
            self._copied = {name: {} for name in self._members}
        self._passes += 1
        self.waiting = set()
        damaged = self._read_home()
        for name, member in self._members.items():
            error = self._copy_to(name, member)
            left = sum(
                self._copied[name].get(ref_name) != ref.token
                for ref_name, ref in self._refs.items()
            )
            if not error and damaged:
                error = f"{damaged} refs of the home are damaged"
            if not error and left == sum(member == name for member, _, _ in self.waiting):
                self._completed_at[name] = begun
            self._lags[name] = RefLag(left + damaged, None, error)
        return self.lags()

    def lags(self) -> Mapping[str, RefLag]:
        """Return the lag of each member now."""
        now = self._clock()
        return {
            name: dataclasses.replace(
                lag,
                age_seconds=now - self._completed_at[name] if name in self._completed_at else None,
            )
            for name, lag in self._lags.items()
        }

    def _read_home(self) -> int:
        """Read what has changed; return the number of refs that cannot be read."""
        # One that became the home keeps a copy by which members that come back are known.
        names = {n for n in self._home.list_refs() if not n.startswith(ref_copy.COPIES_PREFIX)}
        damaged = 0
        found: dict[str, base.Ref] = {}
        for name in names:
            try:
                ref = self._home.refresh_ref(name, self._refs.get(name))
            except exception.CorruptError:
                damaged += 1
                continue
            if ref is not None:
                found[name] = ref
        self._refs = found
        return damaged

    def _copy_to(self, name: str, member: base.RefStore) -> str:
        """Copy to one member; return why something was left out, empty: nothing was."""
        copied = self._copied[name]
        try:
            for ref_name, ref in self._refs.items():
                if copied.get(ref_name) == ref.token:
                    continue
                is_ready = functools.partial(self._is_ready, name, ref_name, ref.content)
                if _write(member, RefCopy(ref_name, ref.content), is_ready):
                    copied[ref_name] = ref.token
                else:
                    self.waiting.add((name, ref_name, ref.token))
            self._remove_old(member, copied)
        except exception.AcstorError as error:
            return exception.one_line(error)
        return ""

    def _remove_old(self, member: base.RefStore, copied: dict[str, str]) -> None:
        """Remove copies of refs that are gone, also those of a process before."""
        wanted = {ref_copy.copy_name(name): name for name in self._refs}
        for copy_name in list(member.list_refs(ref_copy.COPIES_PREFIX)):
            if copy_name in wanted:
                continue
            ref = member.get_ref(copy_name)
            if ref is not None and self._is_gone(ref.content):
                member.swap_ref(copy_name, ref.token, None)
        for ref_name in copied.keys() - self._refs.keys():
            del copied[ref_name]

    def _is_gone(self, copy: bytes) -> bool:
        """Return whether there is no ref that a copy is of; one that is damaged is of none."""
        try:
            return self._home.get_ref(ref_copy.parse(copy).name) is None
        except exception.CorruptError:
            return True


def _write(member: base.RefStore, copy: RefCopy, is_ready: Callable[[], bool]) -> bool:
    """Have a member hold a copy, once it is ready for another one; return whether it does."""
    copy_name, content = ref_copy.copy_name(copy.name), copy.encode()
    present = member.get_ref(copy_name)
    if present is not None and present.content == content:
        return True
    if present is not None and not is_ready():
        return False
    member.swap_ref(copy_name, None if present is None else present.token, content)
    return True
