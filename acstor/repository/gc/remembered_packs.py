"""Packs, and manifests below, that manifests refer to, remembered from one collection to the next.

Manifests never change, so what was read of one stays true: a collection reads the manifests that
are new to it, and of the others only whether they exist. A cache: what is lost of it is read again.
What is wrong in it would have chunks deleted that are in use, so each record is checked when it is
used.
"""

import contextlib
import logging
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from acstor import native
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)

CACHE_VERSION = 1
NAME_LEN = 32
"""Bytes of the name of a pack or manifest."""
_CHECK_LEN = 16
_BUSY_TIMEOUT_S = 5.0
_DOMAIN = b"acstor remembered packs 1"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS manifest (
    digest BLOB PRIMARY KEY, packs BLOB NOT NULL, checksum BLOB NOT NULL
) WITHOUT ROWID, STRICT
"""


class RememberedPacks(Protocol):
    """Packs by manifest. Names are 64 hexadecimal digits."""

    def find(self, manifest: str) -> Sequence[str] | None:
        """Return the packs that a manifest refers to; None: not known."""

    def add(self, manifest: str, packs: Sequence[str]) -> None:
        """Remember the packs of a manifest that was read and checked."""

    def retain(self, manifests: set[str]) -> None:
        """Forget all other manifests."""


class MemoryRememberedPacks:
    """Remembered as long as the process lives."""

    def __init__(self) -> None:
        self._packs: dict[str, tuple[str, ...]] = {}

    def find(self, manifest: str) -> Sequence[str] | None:
        """See :class:`RememberedPacks`."""
        return self._packs.get(manifest)

    def add(self, manifest: str, packs: Sequence[str]) -> None:
        """See :class:`RememberedPacks`."""
        self._packs[manifest] = tuple(packs)

    def retain(self, manifests: set[str]) -> None:
        """See :class:`RememberedPacks`."""
        self._packs = {name: packs for name, packs in self._packs.items() if name in manifests}


class FileRememberedPacks:
    """Remembered in a file on the local disk; a context, from the thread that entered it.

    A file that cannot be used is replaced, or done without: a collection only takes longer then.

    :param path: the file, of one repository; its directory is made if needed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        try:
            self._database = self._open()
        except sqlite3.OperationalError as error:  # another collection runs, or the disk is full
            LOG.warning("%s is done without: %s", self._path, error)
        except (sqlite3.DatabaseError, OSError) as error:
            LOG.warning("%s is begun anew: %s", self._path, error)
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            with self._failing():
                self._database = self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        database, self._database = self._database, None
        if database is not None:
            with self._failing():
                database.commit()  # what was read is true, whatever became of the collection
            database.close()

    def find(self, manifest: str) -> Sequence[str] | None:
        """See :class:`RememberedPacks`."""
        digest = bytes.fromhex(manifest)
        found: tuple[bytes, bytes] | None = None
        with self._failing():
            if self._database is not None:
                found = self._database.execute(
                    "SELECT packs, checksum FROM manifest WHERE digest = ?", (digest,)
                ).fetchone()
        if found is None:
            return None
        packs, checksum = found
        if len(packs) % NAME_LEN or checksum != _checksum(digest, packs):
            LOG.warning("%s: what it has of manifest %s is damaged", self._path, manifest)
            return None
        return [packs[at : at + NAME_LEN].hex() for at in range(0, len(packs), NAME_LEN)]

    def add(self, manifest: str, packs: Sequence[str]) -> None:
        """See :class:`RememberedPacks`."""
        digest, joined = bytes.fromhex(manifest), bytes.fromhex("".join(packs))
        with self._failing():
            if self._database is not None:
                self._database.execute(
                    "INSERT OR REPLACE INTO manifest VALUES (?, ?, ?)",
                    (digest, joined, _checksum(digest, joined)),
                )

    def retain(self, manifests: set[str]) -> None:
        """See :class:`RememberedPacks`."""
        with self._failing():
            if self._database is None:
                return
            known = self._database.execute("SELECT digest FROM manifest")
            gone = [digest for (digest,) in known if digest.hex() not in manifests]
            self._database.executemany(
                "DELETE FROM manifest WHERE digest = ?", ((digest,) for digest in gone)
            )

    def _open(self) -> sqlite3.Connection:
        directory = os.path.dirname(self._path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        for path in (directory, self._path):
            _check_private(path)
        database = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, CACHE_VERSION):
                raise sqlite3.DatabaseError(f"version {version}")
            # A cache: what a power failure takes of it is read again.
            database.execute("PRAGMA synchronous = OFF")
            database.execute(_SCHEMA)
            if version == 0:
                database.execute(f"PRAGMA user_version = {CACHE_VERSION}")
        except BaseException:
            database.close()
            raise
        return database

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Go on without the file after an error of it."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            LOG.warning("%s is done without: %s", self._path, error)
            database, self._database = self._database, None
            if database is not None:
                database.close()


def _check_private(path: str) -> None:
    """Refuse what somebody else may write: it decides over deletion.

    :raises PermissionError: when it is not this user's alone.
    """
    found = os.lstat(path)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} may be written by others")


def _checksum(digest: bytes, packs: bytes) -> bytes:
    return native.digest(_DOMAIN + digest + packs)[:_CHECK_LEN]


def remembered(
    directory: str | None, repository: Repository
) -> contextlib.AbstractContextManager[RememberedPacks]:
    """Return what is remembered of a repository.

    :param directory: of the file; None: nothing outlives the process.
    """
    if directory is None:
        return contextlib.nullcontext(MemoryRememberedPacks())
    return FileRememberedPacks(os.path.join(directory, f"{repository.format.id}.marks"))


def names_of(packs: Iterable[bytes]) -> list[str]:
    """Return names as hexadecimal digits."""
    return [pack.hex() for pack in packs]
