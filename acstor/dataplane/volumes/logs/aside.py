"""Local logs that were put aside: what may hold writes that the origin does not have.

A directory for each, ``<volume>.<number>``, with everything that was kept of the volume and
``aside.json``: why and when. Nothing here is ever removed but by an operator, by name.
"""

import dataclasses
import json
import logging
import os
import re
import shutil
import time
from typing import Any

from acstor import exception, untrusted_json
from acstor.dataplane.volumes.persisted_volume import is_volume_id
from acstor.files import sync_directory, write_atomically

LOG = logging.getLogger(__name__)

ASIDE_VERSION = 1
"""Of ``aside.json``."""

_ASIDE = "aside.json"
_NAME = re.compile(r"(?P<volume>[0-9a-f-]{36})\.(?P<number>[1-9][0-9]{0,8})")
_TIME_MAX = 1e12
"""Latest time at which a log may have been put aside, seconds since the epoch."""
_BYTES_MAX = 64 << 10


@dataclasses.dataclass(frozen=True)
class LogAside:
    """A log that was put aside."""

    name: str
    volume: str
    why: str
    """For people; empty where that could not be written."""
    put_aside_at: float | None
    """Seconds since 1970."""
    bytes: int
    """That its files take on the disk."""
    path: str


class LogsAside:
    """The logs of one host that were put aside; one thread at a time per volume.

    :param directory: made when the first is; on the file system of the logs.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def put(self, volume: str, source: str, why: str) -> LogAside:
        """Move the directory of a volume here.

        :param source: everything that was kept of it.
        :raises OSError: when it cannot be moved; it is where it was then.
        """
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        name = self._free_name(volume)
        content = {"version": ASIDE_VERSION, "volume": volume, "why": why, "at": time.time()}
        try:
            write_atomically(
                os.path.join(source, _ASIDE), json.dumps(content).encode(), is_synced=True
            )
        except OSError as error:
            # A disk without room is a reason to be here; the log itself is what counts.
            LOG.warning("why the log of volume %s is put aside is not kept: %s", volume, error)
        os.rename(source, os.path.join(self._directory, name))
        sync_directory(self._directory)
        sync_directory(os.path.dirname(source))
        return self.get(name)

    def list(self) -> list[LogAside]:
        """Return the logs here, ordered by name."""
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        return [self._describe(name) for name in names if _volume_of(name) is not None]

    def get(self, name: str) -> LogAside:
        """Return one of the logs.

        :raises NotFoundError: when there is none of that name.
        """
        if _volume_of(name) is None or not os.path.isdir(self._path(name)):
            raise exception.NotFoundError(
                f"no log {name} was put aside here", hint="'acstor volume aside list' lists them"
            )
        return self._describe(name)

    def remove(self, name: str) -> LogAside:
        """Remove one of the logs, with whatever only it has; return what it was.

        :raises NotFoundError: when there is none of that name.
        """
        aside = self.get(name)
        shutil.rmtree(aside.path)
        sync_directory(self._directory)
        return aside

    def restore(self, name: str, target: str) -> None:
        """Move one of the logs back to where it was; nothing may be there.

        :raises NotFoundError: when there is none of that name.
        """
        aside = self.get(name)
        os.rename(aside.path, target)
        sync_directory(os.path.dirname(target))
        sync_directory(self._directory)

    def _free_name(self, volume: str) -> str:
        taken = [int(one.name.rpartition(".")[2]) for one in self.list() if one.volume == volume]
        return f"{volume}.{max(taken, default=0) + 1}"

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _describe(self, name: str) -> LogAside:
        path = self._path(name)
        try:
            with open(os.path.join(path, _ASIDE), "rb") as source:
                found: dict[str, Any] = untrusted_json.load(source.read(_BYTES_MAX), _ASIDE)
            why, at = str(found["why"]), untrusted_json.number(found["at"], "at", 0, _TIME_MAX)
        except (OSError, ValueError, KeyError, TypeError):
            why, at = "", None
        volume = _volume_of(name)
        assert volume is not None
        return LogAside(name, volume, why, at, bytes_on_disk(path), path)


def bytes_on_disk(path: str) -> int:
    """Return what the files of a directory take on the disk; what goes meanwhile is not counted."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def is_aside_name(text: str) -> bool:
    """Return whether a log that was put aside may have this name."""
    return _volume_of(text) is not None


def _volume_of(name: str) -> str | None:
    found = _NAME.fullmatch(name)
    return found["volume"] if found and is_volume_id(found["volume"]) else None
