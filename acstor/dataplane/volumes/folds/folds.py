"""Folds: a volume's log in the origin turned into packs and a manifest, here and in its record."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from acstor import exception
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.folds.exclusion import FoldExclusion
from acstor.dataplane.volumes.folds.turns import FoldTurns
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.mending import VolumeMending
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.table import VolumeTable
from acstor.native import DataPlane, map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)


class VolumeFolds:
    """The folds of this host's volumes.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        owner: VolumeOwner,
        mending: VolumeMending,
        turns: FoldTurns,
        exclusion: FoldExclusion,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._table = table
        self._files = files
        self._owner = owner
        self._mending = mending
        self._turns = turns
        self._exclusion = exclusion
        self._runtime = runtime

    def fold(self, volume: str) -> dict[str, object]:
        """Turn the volume's log in the origin into packs and a new manifest, at once."""
        local = self._table.owned(volume)
        with self._turns.at_once(), self._exclusion.of(local):
            return self.fold_in_turn(local, 0.0)

    def fold_slowly(self, volume: str, spread_s: float) -> dict[str, object]:
        """Fold a volume over a time, and give up when somebody is not to wait for it.

        :raises UnavailableError: when it was given up, or the volume is not to be folded now.
        """
        local = self._table.in_runtime(volume)
        has_given_way = local.has_given_way
        turns = self._turns
        with turns.at_once() if has_given_way else turns.over_time(local):
            # Nobody waits in the turn of all volumes for what is done to one of them.
            if not local.fold_lock.acquire(blocking=False):
                raise exception.UnavailableError(f"volume {volume} is being changed")
            try:
                return self.fold_in_turn(local, 0.0 if has_given_way else spread_s)
            finally:
                local.fold_lock.release()

    def fold_in_turn(self, local: LocalVolume, spread_s: float) -> dict[str, object]:
        """Fold a volume, holding the turn of the host's folds and the volume's ``fold_lock``."""
        folded = self._fold(local, spread_s)
        local.has_given_way = False
        return folded

    def _fold(self, local: LocalVolume, spread_s: float) -> dict[str, object]:
        volume = local.volume
        # Chunks of the manifest below are named as they are: it must be the record's.
        kept = self._mending.mend_in_fold_turn(local)
        epoch = kept.epoch
        record = self._owner.owned_record(volume, epoch)
        # Once there is a manifest all that follow are of its version.
        is_paged = record.manifest is None and self._owner.makes_paged()
        with map_errors(f"folding volume {volume}"):
            folded = self._runtime().volume_fold(
                volume,
                functools.partial(self._owner.announce_fold, volume, epoch),
                spread_s,
                record.dedup_scope,
                is_paged,
            )
        if folded is None:
            return {"manifest": None, "is_folded": False}
        digest = folded["manifest"]
        self._prepare(local, record, folded)
        record = self._owner.install_fold(volume, epoch, digest, folded["folded"])
        with local.lock, map_errors(f"folding volume {volume}"):
            # Local records that the manifest holds go from set_base on: it must be here.
            kept = dataclasses.replace(
                self._files.require(volume),
                manifest=record.manifest,
                next=record.next,
                logs=[log.to_fields() for log in record.logs],
            )
            self._files.keep(kept)
            path = self._files.manifest_path(kept)
            assert path is not None
            self._runtime().volume_set_base(volume, path, digest)
        LOG.info("volume %s is folded into manifest %s", volume, digest)
        return {"manifest": digest, "is_folded": True}

    def _prepare(
        self, local: LocalVolume, record: "VolumeRecord", folded: Mapping[str, Any]
    ) -> None:
        """Keep all that a fold will change here but the manifest's name.

        From the installation on the record counts the slots until then as folded, and what is in
        them is collected: this host must not take them for free, whatever becomes of it.
        """
        volume, last = local.volume, folded["folded"]
        with local.lock:
            kept = self._files.require(volume)
            is_own = (last["volume"], last["epoch"]) == (volume, kept.epoch)
            if is_own and last["sequence"] >= kept.next:
                logs = record.closed_until(volume, last["sequence"])
                fields = [log.to_fields() for log in logs]
                kept = self._files.replace(volume, next=last["sequence"] + 1, logs=fields)
            folded_kept = dataclasses.replace(kept, manifest=folded["manifest"])
            self._files.keep_manifest(folded_kept, folded["content"])
