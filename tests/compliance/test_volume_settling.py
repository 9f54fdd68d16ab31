"""Volumes whose owner is lost are settled by the control plane, at whatever moment it is killed."""

import itertools
import random
import uuid

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.volumes.settling import SETTLER
from acstor.repository.volumes.states import VolumeRecordState, state_of
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.volumes.hosts import SEAL, FencedOwnerError, Owner, content_of

VOLUME = str(uuid.UUID(int=3))


class Killed(Exception):  # noqa: N818
    """The control plane's process ends here."""


class ControlPlane:
    """Settles; ``steps_left`` calls of it to the origin are made before it is killed."""

    def __init__(self) -> None:
        self.origin = MemoryOrigin()
        self.repository = Repository.init(self.origin)
        self.store = VolumeStore(self.repository)
        self.store.create(NewVolume(VOLUME, 1 << 20))
        self.steps_left = 1 << 30

    def owner(self, host: str) -> Owner:
        self.store.allow_host(VOLUME, host)
        owner = Owner(self.store, self.origin, VOLUME, host, random.Random(1))
        owner.acquire()
        return owner

    def seal(
        self, volume: str, epoch: int, first: int, member: str | None
    ) -> tuple[int | None, int]:
        self.step()
        slot = first
        while True:
            key = layout.log_key(volume, epoch, slot)
            log = self.origin.of_member(member)
            if log.put_if_absent(key, [SEAL]) or log.get(key, 100) == SEAL:
                break
            slot += 1
        self.step()
        return (slot - 1 if slot > first else None), slot

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise Killed

    def settle(self, steps: int = 1 << 30) -> None:
        self.steps_left = steps
        self.store.settle(VOLUME, self.seal)

    @property
    def content(self) -> str:
        return content_of(self.origin, self.store.get(VOLUME).record.disk)


@pytest.fixture
def control() -> ControlPlane:
    return ControlPlane()


def test_settled_volume_has_everything_that_was_acknowledged(control: ControlPlane) -> None:
    owner = control.owner("h1")
    for number in range(3):
        owner.write(f"write {number}")
    control.store.disallow_host(VOLUME, "h1")
    with pytest.raises(exception.ConflictError):
        control.store.snapshot(VOLUME, str(uuid.UUID(int=4)))
    control.settle()
    record = control.store.get(VOLUME).record
    assert state_of(record) is VolumeRecordState.AVAILABLE
    assert control.content == "write 0write 1write 2"
    control.store.snapshot(VOLUME, str(uuid.UUID(int=4)))
    # The owner was not lost after all: nothing that it writes counts, and it finds out.
    with pytest.raises(FencedOwnerError):
        owner.write("late")
    before = control.store.get(VOLUME).record
    control.settle()
    assert control.store.get(VOLUME).record == before, "it is settled"


def test_volume_that_a_host_may_attach_is_not_settled(control: ControlPlane) -> None:
    control.owner("h1")
    with pytest.raises(exception.ConflictError, match="h1"):
        control.settle()
    assert control.store.get(VOLUME).record.owner == "h1"


@pytest.mark.parametrize(
    ("killed_at", "writes"), list(itertools.product([(0,), (1,), (0, 1), (1, 1, 0)], [0, 2]))
)
def test_settling_that_was_killed_is_done_by_the_next(
    control: ControlPlane, killed_at: tuple[int, ...], writes: int
) -> None:
    owner = control.owner("h1")
    acknowledged = [f"write {number}" for number in range(writes)]
    for text in acknowledged:
        owner.write(text)
    control.store.disallow_host(VOLUME, "h1")
    for index, steps in enumerate(killed_at):
        with pytest.raises(Killed):
            control.settle(steps)
        assert control.store.get(VOLUME).record.owner == SETTLER
        # The owner does not know yet; what it may still store counts.
        text = f"between {index}"
        try:
            owner.write(text)
            acknowledged.append(text)
        except FencedOwnerError:
            pass
    control.settle()
    assert control.content == "".join(acknowledged)
    following = control.owner("h2")
    following.write("and on")
    following.release()
    assert control.content == "".join([*acknowledged, "and on"])


def test_host_that_is_allowed_meanwhile_wins(control: ControlPlane) -> None:
    owner = control.owner("h1")
    owner.write("one")
    control.store.disallow_host(VOLUME, "h1")
    others: list[Owner] = []

    def seal(volume: str, epoch: int, first: int, member: str | None) -> tuple[int | None, int]:
        others.append(control.owner("h2"))
        others[0].write("two")
        return control.seal(volume, epoch, first, member)

    with pytest.raises(exception.FencedError):
        control.store.settle(VOLUME, seal)
    others[0].write("three")
    others[0].release()
    assert control.content == "onetwothree"
