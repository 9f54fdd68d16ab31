"""Members for tests: in memory, with faults, that hang, lie or are full."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.objects import Check, ReplicatedObjects, accept
from acstor.origin.replicated.placement import Assignments, Placed

PATIENT_SECONDS = 120.0
"""Deadline of calls that are answered, however busy the machine is."""
HASTY_SECONDS = 0.02
"""Deadline of calls that are never answered."""


class HangingOrigin(FaultyOrigin):
    """Answers nothing about objects until it is let go."""

    def __init__(self, inner: base.Origin) -> None:
        self.gate = threading.Event()
        operations = (Operation.PUT, Operation.READ, Operation.SIZE, Operation.LIST)
        super().__init__(
            inner,
            [Fault(one, Effect.DELAY) for one in (*operations, Operation.DELETE)],
            sleep=self._hang,
        )

    def _hang(self, seconds: float) -> None:
        self.gate.wait(PATIENT_SECONDS)


class LyingOrigin(MemoryOrigin):
    """Returns other bytes than were stored."""

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        count = super().readinto(key, offset, buffer)
        buffer[:count] = b"!" * count
        return count


class FullOrigin(MemoryOrigin):
    """Takes nothing."""

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        raise exception.ExhaustedError("no space is left on purpose")


def away(inner: base.Origin) -> FaultyOrigin:
    """Return a store that cannot be reached."""
    return FaultyOrigin(inner, [Fault(one, Effect.ERROR) for one in Operation])


def replicated(
    stores: Mapping[str, base.Origin],
    default: Placed | None = None,
    *,
    folders: Mapping[str, Placed] | None = None,
    check: Check = accept,
    noted: Callable[[str, str, int], None] = lambda member, key, size: None,
    clock: Callable[[], float] = time.monotonic,
) -> ReplicatedObjects:
    """Return objects over stores; without a placement each object belongs to all of them."""
    assignments = Assignments(default or Placed(tuple(stores)))
    for folder, placed in (folders or {}).items():
        assignments.assign(folder, placed)
    members = {}
    for name, store in stores.items():
        seconds = HASTY_SECONDS if hangs(store) else PATIENT_SECONDS
        members[name] = Member(name, store, seconds, listing_seconds=seconds, clock=clock)
    return ReplicatedObjects(members, assignments, check=check, noted=noted)


def hangs(store: base.Origin) -> bool:
    """Return whether a store never answers."""
    return isinstance(store, HangingOrigin)
