"""Recovery points of volumes in an origin of several members: what one member alone has of a log.

By the members' listings, so it is true of the moment. What a fold has stored is not in it: packs
and manifests are put into the home and copied like those of images ('acstor origin list').
"""

import dataclasses
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.set_placement import LOG_FOLDER
from acstor.repository import layout
from acstor.repository.volumes.log_object import HEADER_SIZE, log_created_at
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.record_refs import Volume


@dataclasses.dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Distance between a volume and what is left of it when one member is lost."""

    owed_objects: int | None
    """Log objects that one member alone has; None: not known."""
    owed_bytes: int | None
    """The same, bytes."""
    age_seconds: float | None
    """Age of the first of them, from which on a loss takes all; 0.0: there is none. None: it does
    not say, or is not known. By the clock of the host that stored it."""
    error: str = ""
    """Reason for which it is not known."""


class RecoveryPoints:
    """Recovery points by one listing of each member.

    :param origin: of several members.
    :param now: seconds since 1970.
    """

    def __init__(self, origin: ReplicatedOrigin, now: Callable[[], float] = time.time) -> None:
        self._origin = origin
        self._now = now
        self._error = ""
        self._present: dict[str, frozenset[str]] = {}
        for name, member in origin.members.items():
            try:
                self._present[name] = member.list(LOG_FOLDER)
            except exception.AcstorError as error:
                self._error = exception.one_line(error)

    def of(self, volume: Volume) -> RecoveryPoint:
        """Return the recovery point of a volume."""
        if self._error:
            return RecoveryPoint(None, None, None, self._error)
        sole = [
            (key, holders[0])
            for key in self._keys(volume.id, volume.record)
            if len(holders := [name for name, there in self._present.items() if key in there]) == 1
        ]
        if not sole:
            return RecoveryPoint(0, 0, 0.0)
        try:
            sizes = [self._origin.of_member(member).size(key) for key, member in sole]
            return RecoveryPoint(len(sole), sum(sizes), self._age(*sole[0]))
        except exception.NotFoundError:
            # Folded and collected meanwhile.
            return RecoveryPoint(None, None, None, "the volume changed meanwhile")
        except exception.AcstorError as error:
            return RecoveryPoint(len(sole), None, None, exception.one_line(error))

    def _keys(self, volume: str, record: VolumeRecord) -> Iterator[str]:
        """Yield the keys of a disk's log objects in the order of the log."""
        for one in record.logs:
            yield from map(one.key, range(one.first, one.last + 1))
        epoch, member = record.epoch, record.member
        if record.unsealed is not None:
            epoch, member = record.unsealed, record.unsealed_member
        folder = layout.log_folder(volume, epoch)
        there = self._present.get(member or self._origin.view.home, frozenset())
        yield from sorted(
            key
            for key in there
            if key.startswith(folder)
            and (found := layout.parse_log_key(key)) is not None
            and found[2] >= record.next
        )

    def _age(self, key: str, member: str) -> float | None:
        head = self._origin.of_member(member).get_range(key, 0, HEADER_SIZE)
        created_at = log_created_at(head)
        return None if created_at is None else max(0.0, self._now() - created_at)
