"""Settling a volume whose owner is lost: its log is sealed, and nobody owns the volume any more.

Any host that attaches the volume does the same (:mod:`acstor.repository.volumes.ownership`).
Without one, the control plane does it, so that snapshots and clones need not wait for somebody to
open the volume.
What the lost owner acknowledged and had not pushed is then gone for good, just as when the volume
is attached elsewhere; only the owner's own return could have brought it. There is no lease whose
end would tell that an owner is lost (RFD 8), so this is done at an operator's word only.
"""

from collections.abc import Callable

from acstor import exception
from acstor.repository.volumes.durability import DurabilityClass
from acstor.repository.volumes.ownership import Ownership
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.record_refs import Change
from acstor.repository.volumes.states import VolumeRecordEvent

SETTLER = "(settling)"
"""Owner in a record while the log is being sealed; it is never in the record's ``hosts``."""

Seal = Callable[[str, int, int, str | None], tuple[int | None, int]]
"""Seals a volume's epoch from a sequence number on, in its member of the origin; returns the last
log object that counts (None: none does) and the seal's sequence number."""


class Settling(Ownership):
    """Operations of the control plane on volumes whose owner is lost."""

    def settle(self, volume_id: str, seal: Seal) -> Change:
        """Take a volume from an owner that is lost, and give it back; repeating it is safe.

        If the owner runs after all it is fenced: it finds the seal at its next push, or the record
        at its next look, and its clients get EIO.

        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: while a host may attach the volume: that one seals it.
        :raises FencedError: when a host was allowed and owns the volume by now.
        """

        def taken(record: VolumeRecord) -> VolumeRecord:
            if record.hosts:
                raise exception.ConflictError(
                    f"volume {volume_id} may be attached on {', '.join(record.hosts)}, and is "
                    "settled by being opened there",
                    hint="if that host is lost, let Cinder remove its attachment first",
                )
            if record.owner is None:
                return record
            self._check_members(record)
            return record.taken_by(SETTLER)

        return self._sealed(
            volume_id, self._change(volume_id, VolumeRecordEvent.TAKE_OVER, taken), seal
        )

    def move_unused(self, volume_id: str, seal: Seal) -> Change:
        """Have a volume that nobody uses begin an epoch in the member that it is assigned to.

        So that the member that it leaves can be taken away although nobody opens the volume. What
        hosts still have of it locally is void: one with parts that never leave their host stays as
        it is until it is opened, and so does one that is in use. Repeating it is safe.

        :raises NotFoundError: when there is no such volume.
        :raises FencedError: when a host was allowed and owns the volume by now.
        :raises UnavailableError: when the member of its log cannot be asked.
        """

        def taken(record: VolumeRecord) -> VolumeRecord:
            is_lasting = DurabilityClass.NONE not in record.durability.classes
            is_unused = not record.hosts and record.owner in (None, SETTLER)
            is_moving = record.epoch > 0 and record.member != record.assigned
            if not (is_unused and is_lasting and (is_moving or record.owner == SETTLER)):
                return record
            self._check_members(record)
            return record.taken_by(SETTLER)

        return self._sealed(
            volume_id, self._change(volume_id, VolumeRecordEvent.TAKE_OVER, taken), seal
        )

    def _sealed(self, volume_id: str, change: Change, seal: Seal) -> Change:
        """Seal the log of a volume that was taken for that, and give the volume back."""
        record = change.after
        if record.owner != SETTLER or record.unsealed is None:
            return change
        last, slot = seal(volume_id, record.unsealed, record.next, record.unsealed_member)
        last = record.next - 1 if last is None else last
        self.record_takeover(volume_id, SETTLER, record.epoch, last=last, seal=slot)
        released = self.release(volume_id, SETTLER, record.epoch, sequence=None)
        return Change(change.before, released.after)
