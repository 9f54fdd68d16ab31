"""Broken variants of the move of a volume, each of which some order has to find out."""

import dataclasses

from tests.unit.origin.replicated.move_model import MEMBERS, Design, Epoch, Record


@dataclasses.dataclass(frozen=True)
class SameSlotElsewhere(Design):
    """The owner goes on at the new member in the same epoch: the same slot is free there, too."""

    def moved(self, record: Record, host: str) -> Record:
        return record._replace(epoch=record.epoch._replace(member=record.assigned))

    def walked_members(self, epoch: Epoch) -> tuple[str, ...]:
        """Return all members: those before have the first slots of the same epoch."""
        return (epoch.member, *MEMBERS)


@dataclasses.dataclass(frozen=True)
class MoverSwitches(SameSlotElsewhere):
    """The mover itself says that the epoch goes on at another member."""

    def assigned(self, record: Record, member: str) -> Record:
        return record._replace(assigned=member, epoch=record.epoch._replace(member=member))


@dataclasses.dataclass(frozen=True)
class SealAtNewMember(Design):
    """The epoch before is sealed at the member to which the volume goes."""

    def acquired(self, record: Record, host: str) -> Record:
        after = super().acquired(record, host)
        if after.unsealed is not None:
            after = after._replace(unsealed=after.unsealed._replace(member=record.assigned))
        return after


@dataclasses.dataclass(frozen=True)
class UnsealedForgotten(Design):
    """A take-over in mid-move seals the epoch that has not begun, not the one before it."""

    def acquired(self, record: Record, host: str) -> Record:
        epoch = Epoch(record.epoch.number + 1, record.assigned)
        unsealed = record.epoch if record.epoch.number else None
        return record._replace(owner=host, epoch=epoch, unsealed=unsealed)


@dataclasses.dataclass(frozen=True)
class WrittenBeforeRecorded(Design):
    """The new epoch is written to before the end of the one before is in the home."""

    def is_recorded_first(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class NotSealed(Design):
    """The end of the old epoch is looked for, and not occupied."""

    def is_sealed(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class SealFallsThrough(Design):
    """The end is looked for and sealed at another member if the old one does not answer."""

    def sealing_members(self, epoch: Epoch) -> tuple[str, ...]:
        return MEMBERS


@dataclasses.dataclass(frozen=True)
class EmptiedAndWritable(Design):
    """A member that was taken away is emptied, seals too, while hosts may still write to it."""

    def withdraws_access(self) -> bool:
        return False


VARIANTS: dict[str, Design] = {
    "the same slot goes on at the new member": SameSlotElsewhere(),
    "the mover switches the member of an epoch": MoverSwitches(),
    "the old epoch is sealed at the new member": SealAtNewMember(),
    "a take-over in mid-move forgets the unsealed epoch": UnsealedForgotten(),
    "the new epoch is written to before the end is recorded": WrittenBeforeRecorded(),
    "the old epoch is not sealed": NotSealed(),
    "the seal falls through to another member": SealFallsThrough(),
}
"""Variants that a move alone finds out."""
