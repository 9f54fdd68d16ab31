"""What the data plane keeps of the volumes that are open, so that a restart needs no origin.

Layout of ``[volumes] directory``, each file complete or absent::

    <volume>/volume.json         what the volume was opened with, as its owner
    <volume>/standby.json        that this host is the volume's standby, whatever else is there
    <volume>/<digest>.manifest   the manifest below its log; absent for a volume of zeros
    <volume>/log/                the local log (crates/overlay)
    <volume>/arriving-*          being written when the process was killed
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from acstor import exception
from acstor.atomic_file import sync_directory

FORMAT_VERSION = 1
"""Of ``volume.json``."""
STANDBY_VERSION = 1
"""Of ``standby.json``."""
FILE_BYTES_MAX = 64 << 20
"""Largest file that is read, bytes."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGEST = re.compile("[0-9a-f]{64}")
_ARRIVING = "arriving-"
_KEPT = "volume.json"
_STANDBY = "standby.json"


@dataclasses.dataclass(frozen=True)
class KeptVolume:
    """What a volume was opened with; the fields of ``volume.json``, beside ``version``."""

    volume: str
    epoch: int
    """Of this host as the owner."""
    next: int
    """First sequence number of this epoch's log objects that manifest and logs do not hold."""
    size_bytes: int
    manifest: str | None
    """Digest of the manifest below the log, 64 hexadecimal digits; None: zeros."""
    logs: Sequence[Mapping[str, Any]]
    """Log objects over the manifest that others wrote, as in the volume's record."""
    durability: Mapping[str, Any]
    """As in the volume's record."""
    iops: int = 0
    """0: no limit."""
    bytes_per_s: int = 0
    """0: no limit."""

    def encode(self) -> bytes:
        """Return the content of ``volume.json``."""
        fields = {"version": FORMAT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes) -> "KeptVolume":
        """Return what ``volume.json`` says.

        :raises CorruptError: when it is malformed or of another version.
        """
        try:
            fields = json.loads(content)
            if fields.pop("version") != FORMAT_VERSION:
                raise ValueError("another version")
            kept = cls(**fields)
            _check(kept)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise exception.CorruptError(
                f"what was kept of a volume is malformed: {error}",
                hint="close the volume with force; what was not pushed of it is lost",
            ) from error
        return kept


@dataclasses.dataclass(frozen=True)
class KeptStandby:
    """What a host keeps of a volume that another one owns; ``standby.json``, beside ``version``."""

    volume: str
    size_bytes: int

    def encode(self) -> bytes:
        """Return the content of ``standby.json``."""
        fields = {"version": STANDBY_VERSION, **dataclasses.asdict(self)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes) -> "KeptStandby":
        """Return what ``standby.json`` says.

        :raises CorruptError: when it is malformed or of another version.
        """
        try:
            fields = json.loads(content)
            if fields.pop("version") != STANDBY_VERSION:
                raise ValueError("another version")
            kept = cls(**fields)
            if not isinstance(kept.volume, str) or not isinstance(kept.size_bytes, int):
                raise ValueError("a field is of a wrong type")
            if not 0 < kept.size_bytes <= _SIZE_MAX or kept.size_bytes % _SECTOR_SIZE:
                raise ValueError("no size of a disk")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise exception.CorruptError(
                f"what was kept of a standby is malformed: {error}",
                hint="close the volume with force; nothing is lost: its owner has all of it",
            ) from error
        return kept


_SIZE_MAX = 1 << 62
_SECTOR_SIZE = 512


def _check(kept: KeptVolume) -> None:
    numbers = [kept.epoch, kept.next, kept.size_bytes, kept.iops, kept.bytes_per_s]
    for log in kept.logs:
        numbers += [log["epoch"], log["first"], log["last"]]
    volumes = [kept.volume, *(log["volume"] for log in kept.logs)]
    is_sound = (
        all(isinstance(number, int) and number >= 0 for number in numbers)
        and all(isinstance(volume, str) and _UUID.fullmatch(volume) for volume in volumes)
        and isinstance(kept.durability, dict)
        and (kept.manifest is None or _DIGEST.fullmatch(kept.manifest) is not None)
    )
    if not is_sound:
        raise ValueError("a field is of a wrong type or range")


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
            if _UUID.fullmatch(volume) is None:
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
        path = os.path.join(self.directory(volume), _KEPT)
        try:
            with open(path, "rb") as source:
                kept = KeptVolume.decode(source.read(FILE_BYTES_MAX))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if kept.volume != volume:
            raise exception.CorruptError(f"{path} is of volume {kept.volume}")
        return kept

    def find_standby(self, volume: str) -> KeptStandby | None:
        """Return what was kept of a volume whose standby this host is, or None.

        :raises CorruptError: when that is malformed.
        """
        path = os.path.join(self.directory(volume), _STANDBY)
        try:
            with open(path, "rb") as source:
                kept = KeptStandby.decode(source.read(FILE_BYTES_MAX))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if kept.volume != volume:
            raise exception.CorruptError(f"{path} is of volume {kept.volume}")
        return kept

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
