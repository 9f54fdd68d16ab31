"""The directory of one run and the journal of what the run created outside of it.

A run creates things that outlive its process: network namespaces, mounts, processes. Each is
written to the journal *before* it is created (a process: right after, when its id is known), so
that whatever ends a run, ``tools/testbed down`` finds and removes all of it.

The owner of a run holds a lock on ``owner.lock`` while it lives. A run whose lock is free and that
was not left up on purpose (``detached``) is the remains of a crash.
"""

import contextlib
import enum
import fcntl
import json
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterator
from typing import Self

from testbed import exception

JOURNAL_VERSION = 1

#: Directory of all runs. Short, because paths of unix sockets are limited to 107 bytes.
DEFAULT_ROOT = pathlib.Path("/var/tmp/acstor-testbed")  # noqa: S108 - root only, mode 0700


class ResourceKind(enum.StrEnum):
    """Kinds of resources that a run creates outside of its directory."""

    NAMESPACE = "namespace"
    MOUNT = "mount"
    PROCESS = "process"


class RunDirectory:
    """One run: its directory, its unique prefix, its journal."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.id = path.name
        self._lock_fd: int | None = None

    @classmethod
    def create(cls, root: pathlib.Path = DEFAULT_ROOT) -> Self:
        """Create the directory of a new run and become its owner."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            path = root / f"acs{secrets.token_hex(3)}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            run = cls(path)
            run._lock_owner()
            run._append({"journal_version": JOURNAL_VERSION})
            return run

    @classmethod
    def all(cls, root: pathlib.Path = DEFAULT_ROOT) -> list[Self]:
        """Return every run whose directory exists, in the order of their creation."""
        if not root.is_dir():
            return []
        paths = [path for path in root.iterdir() if (path / "journal.jsonl").is_file()]
        return [cls(path) for path in sorted(paths, key=lambda path: path.stat().st_ctime)]

    @classmethod
    def abandoned(cls, root: pathlib.Path = DEFAULT_ROOT) -> list[Self]:
        """Return the runs whose owner is gone and that were not left up on purpose."""
        return [run for run in cls.all(root) if not run.is_detached and not run.is_owned]

    @property
    def prefix(self) -> str:
        """Return what the names of this run's namespaces start with."""
        return self.id

    @property
    def is_detached(self) -> bool:
        """Return whether the run was left up on purpose."""
        return (self.path / "detached").exists()

    @property
    def is_owned(self) -> bool:
        """Return whether a living process owns the run."""
        try:
            descriptor = os.open(self.path / "owner.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def detach(self) -> None:
        """Leave the run up when its owner ends."""
        (self.path / "detached").touch()

    def adopt(self) -> None:
        """Become the owner of a run that has none.

        :raises TestbedError: when a living process owns it.
        """
        try:
            self._lock_owner()
        except BlockingIOError as error:
            raise exception.TestbedError(
                f"run {self.id} belongs to a living process; stop that one first"
            ) from error

    def record(self, kind: ResourceKind, name: str, **details: int | str) -> None:
        """Write one resource to the journal; durable on return."""
        self._append({"kind": kind.value, "name": name, **details})

    def resources(self, kind: ResourceKind) -> list[dict[str, int | str]]:
        """Return the recorded resources of one kind, the newest first.

        A torn last line, as a crash may leave it, is ignored: what it would have named was
        not created.

        :raises TestbedError: when the journal is of a newer version.
        """
        return [entry for entry in reversed(list(self._entries())) if entry.get("kind") == kind]

    def directory(self, *names: str) -> pathlib.Path:
        """Return a directory below the run's, made where it is missing."""
        path = self.path.joinpath(*names)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def delete(self) -> None:
        """Remove the directory; the caller has removed what the journal names."""
        shutil.rmtree(self.path)
        self.release()

    def release(self) -> None:
        """Own the run no longer.

        Not by closing alone: a child that is being started has a copy of the descriptor.
        """
        if self._lock_fd is not None:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = None

    def _lock_owner(self) -> None:
        descriptor = os.open(self.path / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise
        self._lock_fd = descriptor

    def _append(self, entry: dict[str, int | str]) -> None:
        with (self.path / "journal.jsonl").open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(entry) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def _entries(self) -> Iterator[dict[str, int | str]]:
        with (self.path / "journal.jsonl").open(encoding="utf-8") as journal:
            for line in journal:
                with contextlib.suppress(json.JSONDecodeError):
                    entry = json.loads(line)
                    if int(entry.get("journal_version", JOURNAL_VERSION)) > JOURNAL_VERSION:
                        raise exception.TestbedError(
                            f"{self.path}: journal version {entry['journal_version']}; "
                            f"this release reads up to {JOURNAL_VERSION}: use the one that made it"
                        )
                    yield entry
