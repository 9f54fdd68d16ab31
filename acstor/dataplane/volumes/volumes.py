"""The volumes of this host: opened, served, kept over restarts, pushed and given back.

Who owns a volume is in its record in the origin (:mod:`acstor.repository.volumes`); what the owner
wrote is in its log, here and in the origin (crates/overlay).
"""

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.logs.volumes_aside import VolumesAside
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.native import map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_NOBODY = ""
"""Holder of a freeze whose caller does not name itself."""
_PUSH_ATTEMPTS_MAX = 5
"""Pushes that are begun again because a fold was installed meanwhile. A fold takes longer than a
push of what is left, so the second is nearly always the last."""
_PUSHED_FINALLY = frozenset({_S.SERVING, _S.FROZEN, _S.CLOSING})


class Volumes(VolumesAside):
    """The volumes of one data plane; see :class:`.volume_table.VolumeTable`."""

    def push(self, volume: str) -> dict[str, object]:
        """Have everything acknowledged before on the origin; return how to find it there."""
        local = self._owned_here(volume)
        try:
            return self._push(local)
        except exception.FencedError:
            self.checked(volume, self.look(volume))
            raise

    def _owned_here(self, volume: str) -> LocalVolume:
        local = self._in_runtime(volume)
        if local.state is _S.STANDBY:
            raise exception.FencedError(
                f"volume {volume} is not owned by {self._owner.host}, which is its standby",
                hint="ask the owner: 'acstor volume show' tells which host that is",
            )
        return local

    def _push(self, local: LocalVolume) -> dict[str, object]:
        volume, epoch = local.volume, self._files.require(local.volume).epoch
        for _ in range(_PUSH_ATTEMPTS_MAX):
            before = self._owner.owned_record(volume, epoch)
            with map_errors(f"pushing volume {volume}"):
                pushed = self._runtime().volume_push(local.volume)
            record = self._owner.owned_record(volume, epoch)
            # A fold that is installed meanwhile may have read what was written after this push:
            # its manifest is a state of the disk only with the objects that it pushed, too.
            if pushed["epoch"] == epoch and record.manifest == before.manifest:
                return _answer(record, volume, pushed["sequence"])
        raise exception.UnavailableError(
            f"volume {volume} was folded {_PUSH_ATTEMPTS_MAX} times while it was pushed",
            hint="push it again",
        )

    def push_finally(self, timeout_s: float) -> list[str]:
        """Push all that travels before the process ends for good, of all volumes at once.

        Writes wait from here on. What the origin does not take in time stays here, and the next
        process pushes it.

        :returns: the volumes of which something may have stayed.
        """
        if timeout_s <= 0:
            return []
        with self._lock:
            volumes = [one for one in self._volumes.values() if one.state in _PUSHED_FINALLY]
        left = {local.volume for local in volumes}

        def push(local: LocalVolume) -> None:
            volume = local.volume
            try:
                with map_errors(f"the last push of volume {volume}"):
                    self._runtime().volume_freeze(volume, timeout_s)
                    self._runtime().volume_push(volume)
                left.discard(volume)
            except exception.AcstorError as error:
                LOG.warning("%s", error)

        until = time.monotonic() + timeout_s
        pushing = [
            threading.Thread(target=push, args=(local,), name="volume-last-push", daemon=True)
            for local in volumes
        ]
        for thread in pushing:
            thread.start()
        for thread in pushing:
            thread.join(max(0.0, until - time.monotonic()))
        remaining = sorted(left)
        if remaining:
            LOG.warning(
                "the process ends while the origin lacks writes of %s: they are in the local logs",
                ", ".join(remaining),
            )
        return remaining

    def freeze(self, volume: str, timeout_s: float, holder: str | None) -> None:
        """Hold writes until :meth:`thaw`, or for ``timeout_s`` seconds.

        :param holder: on whose behalf; writes go on when none holds them any more.
        """
        local = self._in_runtime(volume)
        with local.lock, map_errors(f"freezing volume {volume}"):
            self._require(local, _S.SERVING, _S.FROZEN)
            if local.state is _S.SERVING:
                local.freezes.clear()  # the process before, or an owner before, may have had them
            self._runtime().volume_freeze(volume, local.hold(holder or _NOBODY, timeout_s))
            local.move(LocalVolumeEvent.FREEZE)

    def thaw(self, volume: str, holder: str | None) -> dict[str, object]:
        """Let writes go on, unless others hold them; say whether they were held until now.

        :param holder: as it was given to :meth:`freeze`.
        """
        local = self._in_runtime(volume)
        with local.lock, map_errors(f"thawing volume {volume}"):
            self._require(local, _S.SERVING, _S.FROZEN)
            was_held, remaining_s = local.let_go(holder or _NOBODY)
            if local.state is _S.FROZEN and remaining_s > 0:
                self._runtime().volume_freeze(volume, remaining_s)
            else:
                self._runtime().volume_thaw(volume)
                local.move(LocalVolumeEvent.THAW)
        return {"done": True, "was_held": was_held}

    def fold(self, volume: str) -> dict[str, object]:
        """Turn the volume's log in the origin into packs and a new manifest, at once."""
        local = self._owned_here(volume)
        with self._fold_turns.at_once(), self._fold_turn(local):
            return self._fold(local, 0.0)

    def fold_slowly(self, volume: str, spread_s: float) -> dict[str, object]:
        """Do the same, spread over a time, and give up when somebody is not to wait for it.

        :raises UnavailableError: when it was given up, or the volume is not to be folded now.
        """
        local = self._in_runtime(volume)
        has_given_way = local.has_given_way
        turns = self._fold_turns
        with turns.at_once() if has_given_way else turns.over_time(local):
            # Nobody waits in the turn of all volumes for what is done to one of them.
            if not local.fold_lock.acquire(blocking=False):
                raise exception.UnavailableError(f"volume {volume} is being changed")
            try:
                return self._fold(local, 0.0 if has_given_way else spread_s)
            finally:
                local.fold_lock.release()

    def _fold(self, local: LocalVolume, spread_s: float) -> dict[str, object]:
        folded = self._fold_in_turn(local, spread_s)
        local.has_given_way = False
        return folded

    def _fold_in_turn(self, local: LocalVolume, spread_s: float) -> dict[str, object]:
        volume = local.volume
        # Chunks of the manifest below are named as they are: it must be the record's.
        kept = self._mend_in_fold_turn(local)
        epoch = kept.epoch
        record = self._owner.owned_record(volume, epoch)
        with map_errors(f"folding volume {volume}"):
            folded = self._runtime().volume_fold(
                volume,
                functools.partial(self._owner.announce_fold, volume, epoch),
                spread_s,
                record.dedup_scope,
            )
        if folded is None:
            return {"manifest": None, "is_folded": False}
        digest = folded["manifest"]
        self._prepare_fold(local, record, folded)
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
            self._runtime().volume_set_base(volume, path)
        LOG.info("volume %s is folded into manifest %s", volume, digest)
        return {"manifest": digest, "is_folded": True}

    def _prepare_fold(
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
                kept = self._files.replace(local.volume, next=last["sequence"] + 1, logs=fields)
            folded_kept = dataclasses.replace(kept, manifest=folded["manifest"])
            self._files.keep_manifest(folded_kept, folded["content"])


def _answer(record: "VolumeRecord", volume: str, sequence: int) -> dict[str, object]:
    state = record.pushed_disk(volume, sequence)
    return {
        "epoch": record.epoch,
        "sequence": sequence,
        "size_bytes": record.size_bytes,
        **state.to_fields(),
    }
