"""Small files beside the local log of a volume, each complete or absent."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Collection
from typing import TypeVar

from acstor import exception
from acstor.dataplane.volumes import manifest_levels
from acstor.dataplane.volumes.clean_proof import CleanProof
from acstor.dataplane.volumes.persisted_volume import PersistedStandby, PersistedVolume
from acstor.files import sync_directory

FILE_BYTES_MAX = 64 << 20
"""Largest file that is read, bytes."""

_ARRIVING = "arriving-"

_Kept = TypeVar("_Kept", PersistedVolume, PersistedStandby, CleanProof)


class PersistedFiles:
    """The small files of all volumes of a directory; one thread at a time per volume.

    :param directory: made when missing, mode 0700.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def directory(self, volume: str) -> str:
        """Return the directory of a volume."""
        return os.path.join(self._directory, volume)

    def make_directory(self, volume: str) -> str:
        """Make the directory of a volume, unless it is there, and return it."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        directory = self.directory(volume)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        return directory

    def read(self, volume: str, name: str, decode: Callable[[bytes], _Kept]) -> _Kept | None:
        """Return what a file of a volume says, None where there is none.

        :raises CorruptError: when that is malformed, or about another volume.
        """
        path = os.path.join(self.directory(volume), name)
        try:
            with open(path, "rb") as source:
                kept = decode(source.read(FILE_BYTES_MAX))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if kept.volume != volume:
            raise exception.CorruptError(f"{path} is of volume {kept.volume}")
        return kept

    def write(self, volume: str, name: str, content: bytes) -> None:
        """Write a file of a volume, in the place of the one that is there."""
        directory = self.directory(volume)
        descriptor, path = tempfile.mkstemp(prefix=_ARRIVING, dir=directory)
        with os.fdopen(descriptor, "wb") as copy:
            copy.write(content)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(path, os.path.join(directory, name))
        sync_directory(directory)

    def forget(self, volume: str, name: str) -> None:
        """Remove a file of a volume, for good."""
        directory = self.directory(volume)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))
        # Also where it was gone: the attempt before may have failed to make that durable.
        with contextlib.suppress(FileNotFoundError):
            sync_directory(directory)

    def remove_other_manifests(self, volume: str, needed: Collection[str]) -> None:
        """Remove manifests that a volume had before, and what a killed process left.

        :param needed: names of the manifests below its log.
        """
        directory = self.directory(volume)
        files = set(map(manifest_levels.file_name, needed))
        for name in os.listdir(directory):
            is_former = name.endswith(".manifest") and name not in files
            if is_former or name.startswith(_ARRIVING):
                os.unlink(os.path.join(directory, name))
