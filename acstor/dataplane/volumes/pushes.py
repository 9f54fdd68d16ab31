"""Pushes that somebody asks for: of one volume, and of all before the process ends for good."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.checks import OwnershipChecks
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.table import VolumeTable
from acstor.native import DataPlane, map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_ATTEMPTS_MAX = 5
"""Pushes that are begun again because a fold was installed meanwhile. A fold takes longer than a
push of what is left, so the second is nearly always the last."""
_PUSHED_FINALLY = (_S.SERVING, _S.FROZEN, _S.CLOSING)


class VolumePushes:
    """Pushes of volumes to the origin.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        owner: VolumeOwner,
        checks: OwnershipChecks,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._table = table
        self._files = files
        self._owner = owner
        self._checks = checks
        self._runtime = runtime

    def push(self, volume: str) -> dict[str, object]:
        """Have everything acknowledged before on the origin; return how to find it there."""
        local = self._table.owned(volume)
        try:
            return self._push(local)
        except exception.FencedError:
            self._checks.check(volume)
            raise

    def _push(self, local: LocalVolume) -> dict[str, object]:
        volume, epoch = local.volume, self._files.require(local.volume).epoch
        for _ in range(_ATTEMPTS_MAX):
            before = self._owner.owned_record(volume, epoch)
            with map_errors(f"pushing volume {volume}"):
                pushed = self._runtime().volume_push(local.volume)
            record = self._owner.owned_record(volume, epoch)
            # A fold that is installed meanwhile may have read what was written after this push:
            # its manifest is a state of the disk only with the objects that it pushed, too.
            if pushed["epoch"] == epoch and record.manifest == before.manifest:
                return _answer(record, volume, pushed["sequence"])
        raise exception.UnavailableError(
            f"volume {volume} was folded {_ATTEMPTS_MAX} times while it was pushed",
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
        volumes = self._table.in_state(*_PUSHED_FINALLY)
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


def _answer(record: "VolumeRecord", volume: str, sequence: int) -> dict[str, object]:
    state = record.pushed_disk(volume, sequence)
    return {
        "epoch": record.epoch,
        "sequence": sequence,
        "size_bytes": record.size_bytes,
        **state.to_fields(),
    }
