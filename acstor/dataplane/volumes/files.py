"""Files that the data plane keeps of open volumes, so that a restart needs no origin.

Layout of ``[volumes] directory``, each file complete or absent::

    <volume>/volume.json         what the volume was opened with, as its owner
    <volume>/standby.json        that this host is the volume's standby, whatever else is there
    <volume>/clean.json          that nothing a client was told is in the log alone
    <volume>/<digest>.manifest   the manifest below its log, and those that it is a delta of; absent
                                 for a volume of zeros
    <volume>/log/                the local log (crates/overlay)
    removed-*/                   a log that is being removed
    <volume>/arriving-*          being written when the process was killed
    aside/<volume>.<number>/     such a directory, put aside; only an operator removes it

A log is removed in one place, :meth:`VolumeFiles._clear`, and only where ``clean.json`` is there.
"""

import dataclasses
import logging
import os
import shutil
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.dataplane.volumes import manifest_levels
from acstor.dataplane.volumes.clean_proof import CleanProof, CleanReason, has_none
from acstor.dataplane.volumes.logs.aside import LogAside, LogsAside
from acstor.dataplane.volumes.logs.removal import LogRemoval
from acstor.dataplane.volumes.persisted_files import FILE_BYTES_MAX, PersistedFiles
from acstor.dataplane.volumes.persisted_volume import (
    PersistedStandby,
    PersistedVolume,
    is_volume_id,
)
from acstor.files import sync_directory

LOG = logging.getLogger(__name__)

_KEPT = "volume.json"
_STANDBY = "standby.json"
_CLEAN = "clean.json"
_ASIDE = "aside"


class VolumeFiles:
    """The files of all volumes that are open on this host; one thread at a time per volume.

    :param directory: made when missing, mode 0700.
    :param reserve_percent: share of its file system that local logs leave free.
    """

    def __init__(self, directory: str, reserve_percent: int = 0) -> None:
        self._directory = directory
        self._reserve_percent = reserve_percent
        self._persisted_files = PersistedFiles(directory)
        self._removal = LogRemoval(directory)
        self.aside = LogsAside(os.path.join(directory, _ASIDE))
        """Logs that were put aside."""

    def reserve_bytes(self) -> int:
        """Return how many bytes of the file system local logs are to leave free."""
        found = os.statvfs(self._directory)
        return found.f_blocks * found.f_frsize * self._reserve_percent // 100

    def kept(self) -> dict[str, PersistedVolume | PersistedStandby | exception.CorruptError]:
        """Return what was kept of each volume that was open, or what is wrong with it."""
        found: dict[str, PersistedVolume | PersistedStandby | exception.CorruptError] = {}
        self._removal.sweep()
        if not os.path.isdir(self._directory):
            return found
        for volume in sorted(os.listdir(self._directory)):
            if not is_volume_id(volume):
                continue
            try:
                # While ownership changes both are there for a moment: to follow is always safe.
                kept = self.find_standby(volume) or self.find(volume)
            except exception.CorruptError as error:
                found[volume] = error
            except OSError as error:
                # One bad file is no reason for the others not to be served.
                found[volume] = exception.CorruptError(f"what was kept is not readable: {error}")
            else:
                if kept is not None:
                    found[volume] = kept
        return found

    def find(self, volume: str) -> PersistedVolume | None:
        """Return what was kept of a volume, or None.

        :raises CorruptError: when that is malformed.
        """
        return self._persisted_files.read(volume, _KEPT, PersistedVolume.decode)

    def find_readable(self, volume: str) -> PersistedVolume | None:
        """Return what was kept of a volume, None also where that is malformed."""
        try:
            return self.find(volume)
        except exception.CorruptError as error:
            LOG.error("volume %s: %s", volume, error)
            return None

    def require(self, volume: str) -> PersistedVolume:
        """Return what was kept of a volume that is open.

        :raises CorruptError: when that is malformed.
        :raises InternalError: when there is nothing.
        """
        kept = self.find(volume)
        if kept is None:
            raise exception.InternalError(f"nothing is kept of volume {volume}, which is open")
        return kept

    def find_standby(self, volume: str) -> PersistedStandby | None:
        """Return what was kept of a volume whose standby this host is, or None.

        :raises CorruptError: when that is malformed.
        """
        return self._persisted_files.read(volume, _STANDBY, PersistedStandby.decode)

    def find_readable_standby(self, volume: str) -> PersistedStandby | None:
        """Return what was kept of a standby, None also where that is malformed."""
        try:
            return self.find_standby(volume)
        except exception.CorruptError as error:
            LOG.error("volume %s: %s", volume, error)
            return None

    def directory(self, volume: str) -> str:
        """Return the directory of a volume."""
        return self._persisted_files.directory(volume)

    def log_directory(self, volume: str) -> str:
        """Return the directory of a volume's local log."""
        return os.path.join(self.directory(volume), "log")

    def manifest_path(self, kept: PersistedVolume) -> str | None:
        """Return the path of the manifest below a volume's log, or None for zeros."""
        if kept.manifest is None:
            return None
        return os.path.join(self.directory(kept.volume), manifest_levels.file_name(kept.manifest))

    def make(self, volume: str) -> None:
        """Make the directories of a volume, empty; what is there of a former opening goes.

        That this host is its standby is kept until there is something to be opened as owner.
        """
        standby = self.find_standby(volume)
        self._clear(volume, "the volume is opened in another epoch")
        directory = self._persisted_files.make_directory(volume)
        if standby is not None:
            self._persisted_files.write(volume, _STANDBY, standby.encode())
        self.keep_clean(CleanProof(volume, CleanReason.UNSERVED))
        os.mkdir(self.log_directory(volume), mode=0o700)
        sync_directory(directory)
        sync_directory(self._directory)

    def find_clean(self, volume: str) -> CleanProof | None:
        """Return why the log of a volume may be removed; None: it may not."""
        try:
            return self._persisted_files.read(volume, _CLEAN, CleanProof.decode)
        except exception.CorruptError as error:
            LOG.error("volume %s: %s; its log is kept", volume, error)
            return None

    def keep_clean(self, clean: CleanProof) -> None:
        """Note that the log of a volume may be removed, until somebody is served from it."""
        self._persisted_files.write(clean.volume, _CLEAN, clean.encode())

    def note_clean(self, volume: str, why: CleanReason) -> None:
        """Note that the origin has all that travels of a volume's log."""
        self.keep_clean(CleanProof(volume, why, self.find_readable(volume)))

    def begin_serving(self, volume: str) -> None:
        """Note that clients may write to a volume from now on: its log is not to be removed."""
        self._persisted_files.forget(volume, _CLEAN)

    def is_doubtful(self, volume: str) -> bool:
        """Return whether the volume may be another host's: the process before gave it back.

        Nobody knows but the origin, whether that took effect.
        """
        clean = self.find_clean(volume)
        return clean is not None and clean.why is CleanReason.RELEASED

    def note_standby(self, kept: PersistedStandby) -> None:
        """Have the next process follow a volume; what it was opened with is kept beside."""
        self._persisted_files.make_directory(kept.volume)
        self._persisted_files.write(kept.volume, _STANDBY, kept.encode())
        sync_directory(self._directory)

    def keep_standby(self, kept: PersistedStandby) -> None:
        """Have the next process follow a volume, whatever it was opened with."""
        if self._is_only_copy(kept.volume):
            self._clear(kept.volume, "another host owns the volume")
        self.note_standby(kept)
        self.forget(kept.volume)

    def keep(self, kept: PersistedVolume, manifests: Mapping[str, bytes] | None = None) -> None:
        """Keep what a volume is opened with; this host is known to own it.

        :param manifests: bytes of manifests below it that are not there, by name.
        """
        # The manifests first, under their names: a kill in between leaves some that nothing names.
        for name, content in (manifests or {}).items():
            self._persisted_files.write(kept.volume, manifest_levels.file_name(name), content)
        self._persisted_files.write(kept.volume, _KEPT, kept.encode())
        self._persisted_files.forget(kept.volume, _STANDBY)
        needed = self._manifests(kept)
        if needed is not None:
            self._persisted_files.remove_other_manifests(kept.volume, needed)

    def change(self, kept: PersistedVolume) -> None:
        """Keep what has changed of an open volume, beside the manifest below it.

        Other manifests stay: a fold may have put its own here and not be installed yet.
        """
        self._persisted_files.write(kept.volume, _KEPT, kept.encode())

    def replace(self, volume: str, **changes: Any) -> PersistedVolume:
        """Change fields of what is kept of an open volume, other than its manifest."""
        kept = dataclasses.replace(self.require(volume), **changes)
        self.change(kept)
        return kept

    def keep_manifest(self, kept: PersistedVolume, content: bytes) -> None:
        """Write the manifest of a volume that is to be kept; those below it are there."""
        path = self.manifest_path(kept)
        if path is not None:
            self._persisted_files.write(kept.volume, os.path.basename(path), content)

    def forget(self, volume: str) -> None:
        """Have a volume not be opened as owner again by the next process."""
        self._persisted_files.forget(volume, _KEPT)

    def remove(self, volume: str, why: str) -> LogAside | None:
        """Remove all that is kept of a volume; a log that may not be removed is put aside.

        :param why: for whoever finds the log there.
        :returns: where it is now, None where nothing had to be put aside.
        """
        return self._clear(volume, why)

    def close(self, volume: str, why: str) -> LogAside | None:
        """Keep the log of a volume that was given back if it has parts of class ``none``.

        They are nowhere else, and part of the volume until another host owns it. All else goes.
        """
        clean = self.find_clean(volume)
        if clean is None or not has_none(clean):
            return self._clear(volume, why)
        self._persisted_files.forget(volume, _STANDBY)
        self._persisted_files.forget(volume, _KEPT)
        return None

    def closed(self) -> list[CleanProof]:
        """Return the logs that are kept of volumes that are not open."""
        names = os.listdir(self._directory) if os.path.isdir(self._directory) else []
        found = [self.find_closed(name) for name in sorted(names) if is_volume_id(name)]
        return [clean for clean in found if clean is not None]

    def find_closed(self, volume: str) -> CleanProof | None:
        """Return the log that is kept of a volume, None while it is open or where there is none."""
        clean = self.find_clean(volume)
        if clean is None or clean.why is not CleanReason.RELEASED:
            return None
        return None if os.path.exists(os.path.join(self.directory(volume), _KEPT)) else clean

    def has_manifest(self, kept: PersistedVolume) -> bool:
        """Return whether the manifest below a volume's log is here, with those below that."""
        return self._manifests(kept) is not None

    def _manifests(self, kept: PersistedVolume) -> list[str] | None:
        """Return the names of the manifests below a volume's log; None: not all are here."""
        if kept.manifest is None:
            return []
        return manifest_levels.names_in(self.directory(kept.volume), kept.manifest)

    def remove_unserved(self, volume: str) -> None:
        """Remove what was made for an opening that failed; nothing else."""
        clean = self.find_clean(volume)
        if clean is not None and clean.why is CleanReason.UNSERVED:
            self._clear(volume, "the volume could not be opened")

    def find_aside(self, aside: LogAside) -> PersistedVolume:
        """Return what a volume was opened with whose log was put aside.

        :raises CorruptError: when that is missing or malformed.
        """
        path = os.path.join(aside.path, _KEPT)
        try:
            with open(path, "rb") as source:
                return PersistedVolume.decode(source.read(FILE_BYTES_MAX))
        except FileNotFoundError as error:
            raise exception.CorruptError(
                f"{path} is missing", hint="without it the log can be no volume again"
            ) from error

    def restore_aside(self, aside: LogAside) -> None:
        """Move a log that was put aside back, to be opened by the next process or attempt.

        :raises ConflictError: when there is another one that may not be removed.
        """
        if self._is_only_copy(aside.volume):
            raise exception.ConflictError(
                f"{self.directory(aside.volume)} has a log of the volume already",
            )
        self._clear(aside.volume, "an older log is put back")
        self.aside.restore(aside.name, self.directory(aside.volume))

    def _clear(self, volume: str, why: str) -> LogAside | None:
        """Remove what is kept of a volume; put it aside where that is the only copy."""
        directory = self.directory(volume)
        if not os.path.isdir(directory):
            return None
        if self._is_only_copy(volume):
            aside = self.aside.put(volume, directory, why)
            LOG.error(
                "volume %s: %s; what the origin lacks of it may be in %s only (see 'acstor volume "
                "aside')",
                volume,
                why,
                aside.path,
            )
            return aside
        # In this order: a kill in between leaves no volume, and a log that may go.
        self._persisted_files.forget(volume, _STANDBY)
        self._persisted_files.forget(volume, _KEPT)
        self._removal.remove(self.log_directory(volume))
        shutil.rmtree(directory, ignore_errors=True)
        return None

    def _is_only_copy(self, volume: str) -> bool:
        """Return whether the log may have what the origin lacks."""
        return self.find_clean(volume) is None and self._has_content(volume)

    def _has_content(self, volume: str) -> bool:
        """Return whether a log was begun, or what was opened cannot be read."""
        try:
            has_log = bool(os.listdir(self.log_directory(volume)))
        except FileNotFoundError:
            has_log = False
        return has_log or not self._is_readable(volume)

    def _is_readable(self, volume: str) -> bool:
        try:
            self.find(volume)
        except exception.CorruptError:
            return False
        return True
