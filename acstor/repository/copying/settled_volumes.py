"""Records of volumes in a restored repository: nobody owns one, and no epoch comes twice.

The origin that comes back is older than the hosts. They may have written in the epochs that follow
those of the records, and may still have logs of them. So a restored record is one of a volume whose
owner was lost and whose log was sealed, and it begins a long way behind all epochs that may have
been given out since: what hosts have, or store late, is of an epoch that no record names.
"""

import dataclasses
from collections.abc import Callable

from acstor import exception
from acstor.origin.base import Origin
from acstor.repository.copying.roots import open_end
from acstor.repository.record_changes import check_sound
from acstor.repository.volumes import log_range
from acstor.repository.volumes.epoch_log import sealer_of
from acstor.repository.volumes.log_range import EPOCH_MAX, LogRange
from acstor.repository.volumes.record import SEALS_MAX, VolumeRecord, random_nonce

Seal = Callable[[str, int, int], tuple[int | None, int]]
"""Seals a volume's epoch from a sequence number on, in the one place of it; returns the last log
object that counts (None: none does) and the seal's sequence number."""
EPOCHS_SKIPPED = 1 << 16
"""Epochs between the record and its restored state: more than a volume has owners between a backup
and its restore, and few enough for 65,000 restores."""

SealerOf = Callable[[Origin], Seal]
"""Returns what seals logs in an origin."""


def native_sealer(origin: Origin) -> Seal:
    """Return what seals the logs of volumes as data planes do."""
    seal = sealer_of(origin)
    return lambda volume, epoch, first: seal(volume, epoch, first, None)


def settled(volume_id: str, content: bytes, seal: Seal) -> bytes:
    """Return the record of a volume as a restored repository has it.

    What its owner had pushed is in closed ranges. Size, durability, snapshots' metadata and the
    hosts that Cinder attached it to stay: they are what Cinder's database says.

    :param seal: seals its log at the destination, where the log objects are already.
    :raises CorruptError: and the like when the record or its log is not readable.
    :raises UnsupportedError: when there are no more epochs, or a newer release wrote the record.
    :raises ExhaustedError: when the destination is full.
    """
    record = VolumeRecord.parse(content, volume_id)
    logs, following, seals = record.logs, record.next, record.seals
    if record.epoch > 0:
        _, epoch, first = open_end(volume_id, record)
        last, slot = seal(volume_id, epoch, first)
        if last is not None and last >= first:
            logs = log_range.appended(logs, LogRange(volume_id, epoch, first, last))
        following, seals = slot + 1, (*seals, (epoch, slot))
    # All of it is in the destination, whatever members the source had.
    logs = tuple(dataclasses.replace(one, member=None) for one in logs)
    if record.epoch + EPOCHS_SKIPPED >= EPOCH_MAX:
        raise exception.UnsupportedError(
            f"volume {volume_id} is in epoch {record.epoch}, behind which there are too few",
            hint="copy its content to a new volume",
        )
    after = dataclasses.replace(
        record,
        logs=logs,
        next=following,
        epoch=record.epoch + EPOCHS_SKIPPED,
        member=None,
        assigned=None,
        owner=None,
        unsealed=None,
        unsealed_member=None,
        seals=seals[-SEALS_MAX:],
        pending=None,
        content_end=None,
        nonce=random_nonce(),
    )
    check_sound(after, f"the restored record of volume {volume_id}")
    return after.encode()
