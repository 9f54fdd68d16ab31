"""Size, limits and durability of a volume that is open, as its record says.

Whoever changes the record tells the owner next, and may fail or be killed in between. So each look
at a record that this host owns compares the settings, too.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.ownership.limits import limits_of
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.dataplane.volumes.table import VolumeTable
from acstor.native import DataPlane, map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_SETTABLE = frozenset({_S.SERVING, _S.FROZEN})


class VolumeSettings:
    """The settings of volumes, changed while they are open.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        owner: VolumeOwner,
        observer: VolumeObserver,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._table = table
        self._files = files
        self._owner = owner
        self._observer = observer
        self._runtime = runtime

    def resize(self, volume: str, size_bytes: int) -> None:
        """Grow a volume; clients are disconnected once idle and find the new size."""
        local = self._table.in_runtime(volume)
        with local.lock, map_errors(f"resizing volume {volume}"):
            self._runtime().volume_resize(volume, size_bytes)
            self._files.replace(volume, size_bytes=size_bytes)

    def set_durability(self, volume: str, durability: Mapping[str, Any]) -> None:
        """Change when writes are on the origin."""
        local = self._table.in_runtime(volume)
        with local.lock, map_errors(f"durability of volume {volume}"):
            self._runtime().volume_set_durability(volume, durability)
            self._files.replace(volume, durability=durability)

    def set_limits(self, volume: str, iops: int, bytes_per_s: int) -> None:
        """Change the limits of a volume's requests; 0: none."""
        local = self._table.in_runtime(volume)
        with local.lock, map_errors(f"limits of volume {volume}"):
            self._runtime().volume_set_limits(volume, iops, bytes_per_s)
            self._files.replace(volume, iops=iops, bytes_per_s=bytes_per_s)

    def follow_record(
        self, local: LocalVolume, kept: PersistedVolume, record: "VolumeRecord"
    ) -> None:
        """Give a volume that is served what its record says; what fails is left to the next look.

        :param record: names this host as owner in the epoch of ``kept``.
        """
        volume = local.volume
        if local.state not in _SETTABLE or not self._other_settings(local, kept, record):
            return
        with local.lock:
            if local.state not in _SETTABLE:
                return
            try:
                # Read again where no call comes in between: one that did may be newer than what
                # was read before.
                kept = self._files.require(volume)
                record = self._owner.owned_record(volume, kept.epoch)
            except exception.AcstorError as error:
                LOG.warning("volume %s: what its record says is not known: %s", volume, error)
                return
            for name, apply in self._other_settings(local, kept, record).items():
                try:
                    apply()
                except (exception.AcstorError, OSError) as error:
                    LOG.warning("volume %s has another %s than its record: %s", volume, name, error)
                else:
                    LOG.warning("volume %s had another %s than its record: set", volume, name)

    def _other_settings(
        self, local: LocalVolume, kept: PersistedVolume, record: "VolumeRecord"
    ) -> dict[str, Callable[[], None]]:
        """Return by setting that differs here what makes it that of the record."""
        volume = kept.volume
        # What the runtime has was not kept where the disk was full.
        status = self._observer.status(local)

        def is_here(**settings: object) -> bool:
            return all(
                value == getattr(kept, name) == status.get(name) for name, value in settings.items()
            )

        found: dict[str, Callable[[], None]] = {}
        iops, bytes_per_s = limits_of(record)
        durability = record.durability.to_fields()
        size_bytes = record.size_bytes
        is_smaller = min(kept.size_bytes, status.get("size_bytes", size_bytes)) < size_bytes
        if is_smaller:
            found["size"] = lambda: self.resize(volume, size_bytes)
        if not is_here(iops=iops, bytes_per_s=bytes_per_s):
            found["limit"] = lambda: self.set_limits(volume, iops, bytes_per_s)
        if not is_here(durability=durability):
            found["durability"] = lambda: self.set_durability(volume, durability)
        return found
