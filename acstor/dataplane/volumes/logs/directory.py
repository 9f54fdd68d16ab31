"""The identity of the directory of local logs, which may be on a file system that is not mounted.

An empty directory in its place looks as if no volume were open here: a host would take its own
volumes over as they were at the last push. So the directory has a random identity, in a file of
its own, and the state directory a copy: they must be the same. The page is
``doc/source/reference/formats/volume-kept.rst``.
"""

import json
import logging
import os
import uuid

from acstor import exception, untrusted_json
from acstor.dataplane.volumes.logs.expected_mounts import Tables, find_missing
from acstor.files import write_atomically

LOG = logging.getLogger(__name__)

IDENTITY_VERSION = 1
"""Of ``identity.json``, in both places."""

_IDENTITY = "identity.json"
_SIZE_MAX = 64 << 10
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


class LogDirectory:
    """The directory of local logs, told from another one in its place.

    :param path: of the directory; it need not exist.
    :param copy_path: of the copy of its identity, on another file system where the directory has
        one of its own.
    :param tables: of what is to be mounted; by default those of this host.
    """

    def __init__(self, path: str, copy_path: str, tables: Tables | None = None) -> None:
        self._path = path
        self._copy_path = copy_path
        self._tables = Tables.of_this_host() if tables is None else tables
        self._first_error: exception.AcstorError | None = None

    def begin(self) -> bool:
        """Check the directory when the process begins; return whether logs may be looked for in it.

        Where not, every later check fails, too: nobody knows what else is there.
        """
        try:
            self.check()
        except exception.AcstorError as error:
            self._first_error = error
            LOG.error("no volume is opened on this host: %s", error)
            return False
        return True

    def check(self) -> None:
        """Make sure that the directory is the one that had the logs of this host.

        :raises UnavailableError: when it is not, or was not when the process began.
        """
        if self._first_error is not None:
            raise self._first_error
        copy = _read(self._copy_path)
        if copy is None or copy == _read(os.path.join(self._path, _IDENTITY)):
            return
        # Hints do not reach Nova's log, and whoever starts a server looks there.
        raise exception.UnavailableError(
            f"{self._path} is not the directory that has this host's local logs of volumes, of "
            f"which {self._copy_path} tells: mount its file system, then run 'acstor host "
            "restart-dataplane'"
        )

    def claim(self) -> None:
        """Give the directory an identity before the first log is made in it.

        :raises UnavailableError: when it is not the one that had the logs of this host, is to be
            on a file system that is not mounted, or cannot be written.
        """
        self.check()
        if _read(self._copy_path) is not None:
            return
        path = os.path.join(self._path, _IDENTITY)
        identity = _read(path)
        if identity is None:
            self._check_mounted()
        try:
            if identity is None:
                identity = str(uuid.uuid4())
                write_atomically(path, _encode(identity), is_synced=True)
            write_atomically(self._copy_path, _encode(identity), is_synced=True)
        except OSError as error:
            raise exception.UnavailableError(
                f"{self._path} is given no identity: {error}",
                hint="make room there and in [DEFAULT] state_path",
            ) from error

    def _check_mounted(self) -> None:
        """Refuse a mount point: from then on the file system itself would be taken for another."""
        missing = find_missing(self._path, self._tables)
        if missing is not None:
            raise exception.UnavailableError(
                f"{missing.point} is not mounted, which {missing.source} names: local logs of "
                f"volumes in {self._path} would not be found again; mount it, then run 'acstor "
                "host restart-dataplane'"
            )


def _encode(identity: str) -> bytes:
    fields = {"version": IDENTITY_VERSION, "identity": identity}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _read(path: str) -> str | None:
    """Return the identity in a file, None where there is no such file.

    :raises UnavailableError: when it cannot be read, or is malformed.
    """
    try:
        with open(path, "rb") as source:
            fields = untrusted_json.load(source.read(_SIZE_MAX), "it")
        if fields["version"] != IDENTITY_VERSION:
            raise ValueError("another version")
        return str(uuid.UUID(fields["identity"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, *_MALFORMED) as error:
        raise exception.UnavailableError(
            f"{path} does not say which directory the local logs are in: {error}",
            hint="mend or remove it",
        ) from error
