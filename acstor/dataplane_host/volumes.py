"""The volumes of this host: opened, served, kept over restarts, pushed and given back.

Who owns a volume is in its record in the origin (:mod:`acstor.volumes`); what the owner wrote is
in its log, here and in the origin (crates/overlay).
"""

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.admin.protocol import VolumeState
from acstor.dataplane import translated
from acstor.dataplane_host.kept_volume import KeptVolume
from acstor.dataplane_host.local_volume import LocalVolume
from acstor.dataplane_host.volume_handover import VolumeHandover
from acstor.dataplane_host.volume_states import VolumeEvent

LOG = logging.getLogger(__name__)

_S = VolumeState
_PUSHED_FINALLY = frozenset({_S.SERVING, _S.FROZEN, _S.CLOSING})


class Volumes(VolumeHandover):
    """The volumes of one data plane; see :class:`.volume_table.VolumeTable`."""

    def push(self, volume: str) -> dict[str, object]:
        """Have everything acknowledged before on the origin; return how to find it there."""
        local = self._in_runtime(volume)
        with translated(f"pushing volume {volume}"):
            pushed = self._runtime().volume_push(local.volume)
        return self._owner.pushed(volume, pushed["epoch"], pushed["sequence"])

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
                with translated(f"the last push of volume {volume}"):
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

    def freeze(self, volume: str, timeout_s: float) -> None:
        """Hold writes until :meth:`thaw`, or for ``timeout_s`` seconds."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"freezing volume {volume}"):
            self._require(local, _S.SERVING, _S.FROZEN)
            self._runtime().volume_freeze(volume, timeout_s)
            local.move(VolumeEvent.FREEZE)

    def thaw(self, volume: str) -> None:
        """Let writes go on."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"thawing volume {volume}"):
            self._require(local, _S.SERVING, _S.FROZEN)
            self._runtime().volume_thaw(volume)
            local.move(VolumeEvent.THAW)

    def resize(self, volume: str, size_bytes: int) -> None:
        """Grow a volume; clients are disconnected once idle and find the new size."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"resizing volume {volume}"):
            self._runtime().volume_resize(volume, size_bytes)
            self._keep(local, size_bytes=size_bytes)

    def set_durability(self, volume: str, durability: Mapping[str, Any]) -> None:
        """Change when writes are on the origin."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"durability of volume {volume}"):
            self._runtime().volume_set_durability(volume, durability)
            self._keep(local, durability=durability)

    def set_limits(self, volume: str, iops: int, bytes_per_s: int) -> None:
        """Change the limits of a volume's requests; 0: none."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"limits of volume {volume}"):
            self._runtime().volume_set_limits(volume, iops, bytes_per_s)
            self._keep(local, iops=iops, bytes_per_s=bytes_per_s)

    def fold(self, volume: str) -> dict[str, object]:
        """Turn the volume's log in the origin into packs and a new manifest, at once."""
        local = self._in_runtime(volume)
        with self._fold_turn(local):
            return self._fold(local, 0.0)

    def fold_slowly(self, volume: str, spread_s: float) -> dict[str, object]:
        """Do the same, spread over a time, and give up when somebody is not to wait for it."""
        local = self._in_runtime(volume)
        with local.fold_lock:
            return self._fold(local, spread_s)

    def _fold(self, local: LocalVolume, spread_s: float) -> dict[str, object]:
        volume = local.volume
        kept = self._kept(volume)
        epoch = kept.epoch
        if self._owner.record(volume).manifest != kept.manifest:
            # Chunks of the manifest below would be named as they are, and are nobody's any more.
            raise exception.ConflictError(
                f"the manifest below volume {volume} is not the one that its record names: a fold "
                "before was installed in the origin and not here",
                hint="close the volume and open it again",
            )
        with translated(f"folding volume {volume}"):
            folded = self._runtime().volume_fold(
                volume, functools.partial(self._owner.announce_fold, volume, epoch), spread_s
            )
        if folded is None:
            return {"manifest": None, "is_folded": False}
        digest = folded["manifest"]
        record = self._owner.install_fold(volume, epoch, digest, folded["folded"])
        with local.lock, translated(f"folding volume {volume}"):
            # Local records that the manifest holds go from set_base on: it must be here.
            kept = self._keep(
                local,
                folded["content"],
                manifest=record.manifest,
                next=record.next,
                logs=[log.to_fields() for log in record.logs],
            )
            path = self._files.manifest_path(kept)
            assert path is not None
            self._runtime().volume_set_base(volume, path)
        LOG.info("volume %s is folded into manifest %s", volume, digest)
        return {"manifest": digest, "is_folded": True}

    def _keep(
        self, local: LocalVolume, manifest_content: bytes | None = None, **changes: Any
    ) -> KeptVolume:
        kept = dataclasses.replace(self._kept(local.volume), **changes)
        self._files.keep(kept, manifest_content)
        return kept
