"""Bringing what is kept of a volume into line with its record.

A fold changes the record first and what is kept here afterwards. Whoever fails or is killed in
between leaves a host whose manifest is older than the record's; what only that manifest names is
collected after a while. So each look at a record that this host owns compares the two. A manifest
whose file here is damaged is fetched again.

``next`` is never older here than in the record: it is kept before the record is asked to install
a fold. A slot of the log that the record counts as folded is thus never filled again, whatever
was collected meanwhile and whether the origin answers at a restart or not.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.ownership.outcomes import OwnerCheck
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.native import DataPlane, DataPlaneError, manifest_name, map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_MENDABLE = frozenset({_S.SERVING, _S.FROZEN})


class VolumeMending:
    """Files of volumes, compared with their records and brought into line with them.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        files: VolumeFiles,
        owner: VolumeOwner,
        observer: VolumeObserver,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._files = files
        self._owner = owner
        self._observer = observer
        self._runtime = runtime

    def check_owner(self, volume: str) -> OwnerCheck | None:
        """Ask who owns a volume; None when nothing is here of it.

        :raises AcstorError: when the origin does not answer, or what is here cannot be read.
        """
        kept = self._files.find(volume)
        return None if kept is None else self._owner.check_owner(volume, kept.epoch)

    def reaffirm(self, kept: PersistedVolume) -> None:
        """Have a release that was tried, and may be under way still, take no effect any more.

        Before a volume is served again that was being given back, and is this host's as its
        record says.

        :raises FencedError: when it took effect meanwhile.
        :raises UnavailableError: when the origin does not answer.
        """
        if self._files.is_doubtful(kept.volume):
            self._owner.reaffirm(kept.volume, kept.epoch)

    def mended(
        self, kept: PersistedVolume, record: "VolumeRecord", *, is_damaged: bool = False
    ) -> PersistedVolume:
        """Return what a volume is to be opened with, kept, after a look at its record.

        :param record: names this host as owner in the epoch of ``kept``.
        :param is_damaged: true when the file of the manifest here was found damaged.
        :raises AcstorError: when the manifest cannot be had, or nothing can be written here.
        """
        mended = _as_recorded(kept, record)
        if mended != kept:
            LOG.warning(
                "volume %s: manifest %s here, %s in its record: mended",
                kept.volume,
                kept.manifest,
                record.manifest,
            )
        missing = {}
        if is_damaged or not self._files.has_manifest(mended):
            missing = self._owner.manifests(mended.manifest)
        has_changed = mended != kept or bool(missing)
        if has_changed or self._files.find_standby(kept.volume) is not None:
            self._keep(mended, missing)
        return mended

    def _keep(self, kept: PersistedVolume, manifests: Mapping[str, bytes]) -> None:
        try:
            self._files.keep(kept, manifests)
        except OSError as error:
            raise exception.UnavailableError(
                f"what the record says of volume {kept.volume} cannot be kept here: {error}",
                hint="make room in [volumes] directory",
            ) from error

    def has_fetched_damaged(self, kept: PersistedVolume) -> bool:
        """Fetch the manifest below a volume again; return False where its file is that manifest.

        Of one that is read by the page only the header is looked at.

        :raises AcstorError: when the manifest cannot be had, or nothing can be written here.
        """
        path = self._files.manifest_path(kept)
        if path is None or _name_of(path) == kept.manifest:
            return False
        LOG.error("volume %s: %s is damaged, it is fetched again", kept.volume, path)
        self._keep(kept, self._owner.manifests(kept.manifest))
        return True

    def is_served_behind(
        self, local: LocalVolume, kept: PersistedVolume, record: "VolumeRecord"
    ) -> bool:
        """Return whether a volume that is served has another manifest than its record."""
        if local.state not in _MENDABLE or record.manifest is None:
            return False
        below = self._observer.status(local).get("manifest")
        return is_behind(kept, record) or record.manifest != below

    def mend(self, local: LocalVolume) -> None:
        """Bring a volume that is served into line, unless a fold of it is under way.

        :raises AcstorError: when the origin does not answer.
        """
        if not local.fold_lock.acquire(blocking=False):
            return  # the next fold begins with this
        try:
            self.mend_in_fold_turn(local)
        finally:
            local.fold_lock.release()

    def mend_in_fold_turn(self, local: LocalVolume) -> PersistedVolume:
        """Bring a volume that is served into line, holding its ``fold_lock``; return what is kept.

        :raises FencedError: when another host owns it by now.
        """
        with local.lock:
            kept = self._files.require(local.volume)
            record = self._owner.owned_record(local.volume, kept.epoch)
            is_damaged = self._is_damaged(local)
            if is_damaged or self.is_served_behind(local, kept, record):
                kept = self.mended(kept, record, is_damaged=is_damaged)
                path = self._files.manifest_path(kept)
                assert path is not None
                assert kept.manifest is not None
                with map_errors(f"mending volume {local.volume}"):
                    self._runtime().volume_set_base(local.volume, path, kept.manifest)
            return kept

    def _is_damaged(self, local: LocalVolume) -> bool:
        is_damaged = bool(self._observer.status(local).get("is_manifest_damaged"))
        if is_damaged:
            LOG.error("volume %s: its manifest is damaged here, it is fetched again", local.volume)
        return is_damaged and local.state in _MENDABLE


def _name_of(path: str) -> str | None:
    try:
        return manifest_name(path)
    except DataPlaneError as error:
        LOG.warning("%s", error)
        return None


def is_behind(kept: PersistedVolume, record: "VolumeRecord | None") -> bool:
    """Return whether a record, if this host owns the volume, names another manifest."""
    return record is not None and record.manifest != kept.manifest


def _as_recorded(kept: PersistedVolume, record: "VolumeRecord") -> PersistedVolume:
    following = max(kept.next, record.next)
    logs = record.closed_until(kept.volume, following - 1)
    return dataclasses.replace(
        kept,
        manifest=record.manifest,
        next=following,
        logs=[log.to_fields() for log in logs],
    )
