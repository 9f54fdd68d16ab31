"""Delayed commit: captures of several disks on one host, sent once they were compared.

Disks of one template change alike: what several captures have in common is stored once. A host
therefore holds captures back until all of a schedule's slot are there, or until a bound of time or
bytes is reached: they are shown as captured meanwhile, and are lost with the host.

Source: CloudVS, §3.5 with Figure 5. The paper has no bounds.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from acstor import exception


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of what is held back."""

    seconds: float = 120.0
    """Longest time that a capture waits for others."""
    bytes: int = 4 << 30
    """Most bytes that captures on the host hold."""

    def __post_init__(self) -> None:
        """Refuse what is no bound.

        :raises InvalidError: when one is negative.
        """
        if not self.seconds >= 0 or self.bytes < 0:
            raise exception.InvalidError("a bound of delayed commits is negative")


@dataclasses.dataclass(frozen=True, slots=True)
class CapturedDelta:
    """Incremental delta of one disk that is on the host and nowhere else."""

    version_id: str
    slot: str
    """Slot of a schedule, or whatever else captures of one moment have in common."""
    digests: tuple[bytes, ...]
    """Names of its chunks with content, in the order of the disk."""
    held_bytes: int
    """Bytes that it takes on the host."""


@dataclasses.dataclass(frozen=True, slots=True)
class SharedCommit:
    """Chunks of one capture of a batch."""

    version_id: str
    stored: tuple[bytes, ...]
    """Names of the chunks that it stores, each once."""
    shared: Mapping[bytes, str]
    """Names of the chunks that a capture before it in the batch stores, and whose that is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Savings:
    """Chunks of a batch before and after the comparison."""

    changed: int
    """Chunks of all deltas."""
    stored: int
    """Chunks that are sent."""


def share(captures: Sequence[CapturedDelta]) -> list[SharedCommit]:
    """Return which capture stores which chunk: the first that has it.

    They have to be committed in this order. Where one fails, ask again for those that follow.
    """
    owners: dict[bytes, str] = {}
    commits = []
    for capture in captures:
        shared = {
            digest: owners[digest]
            for digest in capture.digests
            if owners.get(digest, capture.version_id) != capture.version_id
        }
        stored = tuple(dict.fromkeys(one for one in capture.digests if one not in shared))
        owners.update(dict.fromkeys(stored, capture.version_id))
        commits.append(SharedCommit(capture.version_id, stored, shared))
    return commits


def savings(captures: Sequence[CapturedDelta]) -> Savings:
    """Return what comparing captures saves."""
    return Savings(
        changed=sum(len(capture.digests) for capture in captures),
        stored=sum(len(commit.stored) for commit in share(captures)),
    )


@dataclasses.dataclass(slots=True)
class _Held:
    """A capture that waits."""

    capture: CapturedDelta
    since: float


class DelayedCommits:
    """Captures that one host holds back. Not thread-safe; the time is passed in.

    :param bounds: of all of them together.
    """

    def __init__(self, bounds: Bounds) -> None:
        """Hold nothing yet."""
        self._bounds = bounds
        self._held: list[_Held] = []
        self._awaited: dict[str, set[str]] = {}
        """By slot, versions that are being captured."""

    @property
    def held_bytes(self) -> int:
        """Bytes that captures on the host hold."""
        return sum(one.capture.held_bytes for one in self._held)

    def has_room(self, more_bytes: int) -> bool:
        """Return whether a capture of so many bytes more stays within the bound."""
        return self.held_bytes + more_bytes <= self._bounds.bytes

    def ages(self, now: float) -> dict[str, float]:
        """Return by version how many seconds it has been held back."""
        return {one.capture.version_id: now - one.since for one in self._held}

    def expect(self, slot: str, version_ids: Iterable[str]) -> None:
        """Note that captures of a slot have begun: those that are there wait for them."""
        self._awaited.setdefault(slot, set()).update(version_ids)

    def abandon(self, slot: str, version_id: str) -> None:
        """Note that a capture has failed: nobody waits for it any more."""
        awaited = self._awaited.get(slot, set())
        awaited.discard(version_id)
        if not awaited:
            self._awaited.pop(slot, None)

    def add(self, capture: CapturedDelta, now: float) -> None:
        """Hold a capture back.

        :param now: seconds of a clock that is never set.
        """
        self._held.append(_Held(capture, now))
        self.abandon(capture.slot, capture.version_id)

    def due_at(self) -> float | None:
        """Return the time at which a bound of time is reached, None where nothing is held."""
        if not self._held:
            return None
        return min(one.since for one in self._held) + self._bounds.seconds

    def take_due(self, now: float) -> list[CapturedDelta]:
        """Return the captures to commit now, and hold them no longer.

        All of a slot that is complete. All captures of the host, whatever their slot, once the
        oldest has waited for as long as is allowed or they hold too many bytes: more is had in
        common then.
        """
        due_at = self.due_at()
        is_over = due_at is not None and now >= due_at
        if is_over or self.held_bytes >= self._bounds.bytes:
            taken, self._held = self._held, []
        else:
            taken = [one for one in self._held if one.capture.slot not in self._awaited]
            self._held = [one for one in self._held if one.capture.slot in self._awaited]
        return [one.capture for one in taken]
