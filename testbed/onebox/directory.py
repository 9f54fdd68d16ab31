"""The directory of a one-box: where everything that it makes is kept."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from testbed import exception

DEFAULT_PATH = pathlib.Path("/var/lib/acstor-onebox")
#: What ``down`` leaves and ``down --purge`` removes.
KEPT = ("venv", "cache")

#: Paths of unix sockets are limited to 107 bytes; the longest below a one-box has about 60.
_PATH_BYTES_MAX = 45


class OneBoxDirectory:
    """Paths below the directory of one one-box; hosts see them under the same names."""

    def __init__(self, path: pathlib.Path = DEFAULT_PATH) -> None:
        if not path.is_absolute() or len(os.fsencode(path)) > _PATH_BYTES_MAX:
            raise exception.TestbedError(
                f"{path} is no absolute path of at most {_PATH_BYTES_MAX} bytes",
                hint="unix sockets lie below it, whose paths are short; choose another --directory",
            )
        self.path = path
        self.venv = path / "venv"
        self.cache = path / "cache"
        self.settings = path / "settings.json"
        #: Data and configuration of each host, one folder per host.
        self.hosts = path / "hosts"
        self.logs = path / "log"
        #: Which processes hold the hosts' namespaces, and where they listen.
        self.run = path / "run"
        #: Shared by all hosts, as a network file system would be.
        self.shared = path / "shared"

    def create(self) -> None:
        """Make the directories; every user may pass through, QEMU's among them."""
        for directory in (self.path, self.hosts, self.logs, self.run, self.shared, self.cache):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.run.chmod(0o700)

    def host(self, name: str) -> pathlib.Path:
        """Return the folder of a host."""
        return self.hosts / name

    def etc(self, host: str) -> pathlib.Path:
        """Return the folder that holds what is in ``/etc`` of a host."""
        return self.hosts / host / "etc"

    def log(self, host: str, service: str) -> pathlib.Path:
        """Return the log file of a service."""
        return self.logs / host / f"{service}.log"

    def program(self, name: str) -> str:
        """Return the path of a program of the virtual environment."""
        return str(self.venv / "bin" / name)

    @property
    def is_up(self) -> bool:
        """Return whether there is something that ``down`` would take down."""
        return self.run.is_dir() and any(self.run.iterdir())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from changing the one-box meanwhile.

        :raises TestbedError: when another process does.
        """
        self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Of the directory itself: a file for it would be left over.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise exception.TestbedError(
                    f"another process changes the one-box in {self.path}",
                    hint="wait for it to end, then try again",
                ) from error
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child being started has a copy of it
            os.close(descriptor)
