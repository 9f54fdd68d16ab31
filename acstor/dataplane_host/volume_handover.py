"""Live migration: a volume follows its guest from one host to the other.

Both hosts have the volume open, one owns it. The other, the standby, lets requests wait; the first
of them makes it ask for the volume, in the record. The owner sees that, pushes what is left,
releases the volume and becomes the standby, and whoever asked becomes the owner. So each request
is answered by an owner, with everything that any owner acknowledged, whichever guest it comes from.
"""

import logging
import random
import time
from collections.abc import Callable

from acstor import exception
from acstor.admin.protocol import VolumeState
from acstor.dataplane_host.kept_volume import KeptStandby
from acstor.dataplane_host.local_volume import LocalVolume
from acstor.dataplane_host.volume_lifecycle import VolumeLifecycle
from acstor.dataplane_host.volume_states import VolumeEvent

LOG = logging.getLogger(__name__)

_S = VolumeState
_TIMEOUT = 50.0
"""Seconds for the owner to hand a volume over; requests wait for 60."""
_PATIENCE = 3.0
"""Seconds for which a volume that was released is left to the host that asked for it first."""
_WAIT_MIN = 0.02
_WAIT_MAX = 0.1


class VolumeHandover(VolumeLifecycle):
    """How a volume goes from the owner to the standby, and back."""

    def wanted(self) -> list[str]:
        """Return the volumes of which this host is the standby and for which requests wait."""
        with self._lock:
            volumes = list(self._volumes.values())
        return [
            local.volume
            for local in volumes
            if local.state is _S.STANDBY and self._status_of_runtime(local).get("is_wanted")
        ]

    def has_standby(self) -> bool:
        """Return whether this host is the standby of a volume."""
        with self._lock:
            return any(local.state is _S.STANDBY for local in self._volumes.values())

    def served(self) -> list[str]:
        """Return the volumes that this host owns and serves."""
        with self._lock:
            return [one.volume for one in self._volumes.values() if one.state is _S.SERVING]

    def bell(self) -> str | None:
        """Return what changes whenever somebody waits for a volume of this host.

        :raises AcstorError: when the origin does not answer.
        """
        return self._owner.bell()

    def fetch(self, volume: str, wait: Callable[[float], object] = time.sleep) -> bool:
        """Ask for a volume and own it once its owner has released it; return whether it is here.

        :raises UnavailableError: when the owner does not hand it over in time, or the origin does
            not answer.
        """
        started_at = time.monotonic()
        until = started_at + _TIMEOUT
        while True:
            with self._changing(volume) as local:
                if local.state is not _S.STANDBY:
                    return local.state is _S.SERVING
                record = self._owner.record(volume)
                is_patient = time.monotonic() < started_at + _PATIENCE
                if not self._owner.may_take(record, is_patient=is_patient):
                    self._owner.ask_for(volume, record)
                elif self._try_to_own(local):
                    return True
            if time.monotonic() >= until:
                raise exception.UnavailableError(
                    f"the owner of volume {volume} did not hand it over in {_TIMEOUT:g} s",
                    hint="check the data plane of the host that the guest comes from",
                )
            wait(random.uniform(_WAIT_MIN, _WAIT_MAX))

    def _try_to_own(self, local: LocalVolume) -> bool:
        try:
            kept = self._owned(local.volume)
        except exception.ConflictError:
            return False
        self._start(local, kept)
        local.role = local.role.OWNER
        local.move(VolumeEvent.SERVED)
        LOG.info("volume %s was handed over to this host, epoch %d", local.volume, kept.epoch)
        return True

    def watch(self, volume: str) -> bool:
        """Look at the record of a volume that is served: fence or hand it over, as it says.

        :returns: whether a migration of it is under way, so that it should be watched closely.
        """
        kept = self._find(volume)
        if kept is None:
            return False
        record = self._owner.record(volume)
        if (record.owner, record.epoch) != (self._owner.host, kept.epoch):
            # Looked at again: it may have been opened anew between the two.
            self.checked(volume, self.is_owner(volume))
        elif self._owner.wanted_by(record) is not None:
            self.hand_over(volume)
        return record.is_standby_allowed

    def hand_over(self, volume: str) -> None:
        """Push what is left, release the volume and become its standby.

        :raises AcstorError: when that fails; the volume is served here then as before.
        """
        local = self._known(volume)
        with self._fold_turn(local), local.lock:
            if local.state is not _S.SERVING:
                return
            kept = self._kept(volume)
            try:
                self._release(local)
            except exception.AcstorError:
                if local.released is not None:
                    local.released = None
                    self._start(local, kept)
                raise
            self._files.keep_standby(KeptStandby(volume, kept.size_bytes))
            local.role = local.role.STANDBY
            local.move(VolumeEvent.HANDED_OVER)
        LOG.info("volume %s is handed over; this host is its standby", volume)
