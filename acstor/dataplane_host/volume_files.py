"""What the data plane keeps of the volumes that are open, so that a restart needs no origin.

Layout of ``[volumes] directory``, each file complete or absent::

    <volume>/volume.json         what the volume was opened with, as its owner
    <volume>/standby.json        that this host is the volume's standby, whatever else is there
    <volume>/<digest>.manifest   the manifest below its log; absent for a volume of zeros
    <volume>/log/                the local log (crates/overlay)
    <volume>/arriving-*          being written when the process was killed
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import TypeVar

from acstor import exception
from acstor.atomic_file import sync_directory
from acstor.dataplane_host.kept_volume import KeptStandby, KeptVolume, is_volume_id

FILE_BYTES_MAX = 64 << 20
"""Largest file that is read, bytes."""

_ARRIVING = "arriving-"
_KEPT = "volume.json"
_STANDBY = "standby.json"

_Kept = TypeVar("_Kept", KeptVolume, KeptStandby)


class VolumeFiles:
    """The files of all volumes that are open on this host; one thread at a time per volume.

    :param directory: made when missing, mode 0700.
    :param reserve_percent: share of its file system that local logs leave free.
    """

    def __init__(self, directory: str, reserve_percent: int = 0) -> None:
        self._directory = directory
        self._reserve_percent = reserve_percent

    def reserve_bytes(self) -> int:
        """Return how many bytes of the file system local logs are to leave free."""
        found = os.statvfs(self._directory)
        return found.f_blocks * found.f_frsize * self._reserve_percent // 100

    def kept(self) -> dict[str, KeptVolume | KeptStandby | exception.CorruptError]:
        """Return what was kept of each volume that was open, or what is wrong with it."""
        found: dict[str, KeptVolume | KeptStandby | exception.CorruptError] = {}
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

    def find(self, volume: str) -> KeptVolume | None:
        """Return what was kept of a volume, or None.

        :raises CorruptError: when that is malformed.
        """
        return self._read(volume, _KEPT, KeptVolume.decode)

    def find_standby(self, volume: str) -> KeptStandby | None:
        """Return what was kept of a volume whose standby this host is, or None.

        :raises CorruptError: when that is malformed.
        """
        return self._read(volume, _STANDBY, KeptStandby.decode)

    def directory(self, volume: str) -> str:
        """Return the directory of a volume."""
        return os.path.join(self._directory, volume)

    def log_directory(self, volume: str) -> str:
        """Return the directory of a volume's local log."""
        return os.path.join(self.directory(volume), "log")

    def manifest_path(self, kept: KeptVolume) -> str | None:
        """Return the path of the manifest below a volume's log, or None for zeros."""
        if kept.manifest is None:
            return None
        return os.path.join(self.directory(kept.volume), f"{kept.manifest}.manifest")

    def make(self, volume: str) -> None:
        """Make the directories of a volume, empty; what is there of a former opening goes.

        That this host is its standby is kept until there is something to be opened as owner.
        """
        self.forget(volume)
        directory = self._make_directory(volume)
        for name in os.listdir(directory):
            if name != _STANDBY:
                path = os.path.join(directory, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        os.mkdir(self.log_directory(volume), mode=0o700)
        sync_directory(directory)
        sync_directory(self._directory)

    def keep_standby(self, kept: KeptStandby) -> None:
        """Have the next process follow a volume, whatever it was opened with."""
        self._make_directory(kept.volume)
        self._write(kept.volume, _STANDBY, kept.encode())
        sync_directory(self._directory)
        self._forget(kept.volume, _KEPT)

    def keep(self, kept: KeptVolume, manifest: bytes | None = None) -> None:
        """Keep what a volume is opened with.

        :param manifest: the bytes of a new manifest; None: that which is there.
        """
        # The manifest first, under its digest: a kill in between leaves one that nothing names.
        path = self.manifest_path(kept)
        if manifest is not None and path is not None:
            self._write(kept.volume, os.path.basename(path), manifest)
        self._write(kept.volume, _KEPT, kept.encode())
        self._forget(kept.volume, _STANDBY)
        self._remove_others(kept)

    def forget(self, volume: str) -> None:
        """Have a volume not be opened as owner again by the next process."""
        self._forget(volume, _KEPT)

    def remove(self, volume: str) -> None:
        """Remove all that is kept of a volume."""
        # In this order: a kill in between leaves no volume.
        self._forget(volume, _STANDBY)
        self._forget(volume, _KEPT)
        shutil.rmtree(self.directory(volume), ignore_errors=True)

    def _read(self, volume: str, name: str, decode: Callable[[bytes], _Kept]) -> _Kept | None:
        path = os.path.join(self.directory(volume), name)
        try:
            with open(path, "rb") as source:
                kept = decode(source.read(FILE_BYTES_MAX))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if kept.volume != volume:
            raise exception.CorruptError(f"{path} is of volume {kept.volume}")
        return kept

    def _make_directory(self, volume: str) -> str:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        directory = self.directory(volume)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        return directory

    def _forget(self, volume: str, name: str) -> None:
        directory = self.directory(volume)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))
            sync_directory(directory)

    def _remove_others(self, kept: KeptVolume) -> None:
        """Remove manifests that the volume had before, and what a killed process left."""
        directory = self.directory(kept.volume)
        for name in os.listdir(directory):
            is_former = name.endswith(".manifest") and name != f"{kept.manifest}.manifest"
            if is_former or name.startswith(_ARRIVING):
                os.unlink(os.path.join(directory, name))

    def _write(self, volume: str, name: str, content: bytes) -> None:
        directory = self.directory(volume)
        descriptor, path = tempfile.mkstemp(prefix=_ARRIVING, dir=directory)
        with os.fdopen(descriptor, "wb") as copy:
            copy.write(content)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(path, os.path.join(directory, name))
        sync_directory(directory)
