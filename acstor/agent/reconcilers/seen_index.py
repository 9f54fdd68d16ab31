"""Memory of the statements about the index that a host has believed: ``seen-index.json``.

It lies in ``<state_path>/agent``. By it an old index that somebody puts back is noticed, also after
a restart. It is kept per key, as the memory of records is (``seen_records.py``).
"""

import dataclasses
import json
import logging
import os
import re
from typing import Any

from acstor import exception, untrusted_json
from acstor.files import write_atomically
from acstor.repository.images.index_statement import IndexStatement, VerifiedStatement
from acstor.repository.signing.trusted_keys import KEYS_MAX

LOG = logging.getLogger(__name__)

FILE_NAME = "seen-index.json"
FILE_VERSION = 1
FILE_BYTES_MAX = 64 << 10
CLOCK_SLACK = 3600
"""Seconds by which the clocks of two registrars may differ: an index that was begun anew is told
from an older one by the time alone."""
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_NUMBER_MAX = (1 << 53) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class SeenStatement:
    """The newest statement of one key."""

    index: str
    generation: int
    time: int
    """The latest of all that the key has signed."""

    def is_newer_than(self, statement: IndexStatement) -> bool:
        """Return whether a statement is an older one that somebody has put back."""
        if statement.index_id == self.index:
            return statement.generation < self.generation
        return statement.time < self.time - CLOCK_SLACK


class SeenIndex:
    """The memory of one host; of no use to two threads at once.

    :param repository_id: of the repository that the statements are about.
    """

    def __init__(self, path: str, repository_id: str) -> None:
        self._path = path
        self._repository_id = repository_id
        self._keys: dict[str, SeenStatement] | None = None

    def find(self, key_id: str) -> SeenStatement | None:
        """Return the newest statement that a key has signed; None: none was seen."""
        return self._loaded().get(key_id)

    def note(self, verified: VerifiedStatement) -> None:
        """Remember a statement that is not older than those before, on the disk too.

        A disk that cannot be written is told of: what is remembered then ends with the process.
        """
        seen, statement = self._loaded(), verified.statement
        former = seen.get(verified.key_id)
        # Of another index, too: each one that is put back would lead as far back as clocks differ.
        time = statement.time if former is None else max(statement.time, former.time)
        new = SeenStatement(statement.index_id, statement.generation, time)
        if new == former:
            return
        seen.pop(verified.key_id, None)
        seen[verified.key_id] = new
        while len(seen) > KEYS_MAX:
            del seen[next(iter(seen))]
        try:
            write_atomically(self._path, self.encode(), is_synced=True)
        except OSError as error:
            LOG.warning("what was seen of the index of images cannot be remembered: %s", error)

    def encode(self) -> bytes:
        """Return the file's content, JSON."""
        fields = {
            "version": FILE_VERSION,
            "repository": self._repository_id,
            "keys": {key: dataclasses.asdict(seen) for key, seen in self._loaded().items()},
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    def _loaded(self) -> dict[str, SeenStatement]:
        """Return what is remembered; a file that cannot be used is told of, and begun anew."""
        if self._keys is None:
            self._keys = {}
            try:
                with open(self._path, "rb") as file:
                    self._keys = self._parse(file.read(FILE_BYTES_MAX))
            except FileNotFoundError:
                pass
            except (OSError, exception.AcstorError) as error:
                LOG.error("%s; an old index of images is taken until a newer one is seen", error)
        return self._keys

    def _parse(self, content: bytes) -> dict[str, SeenStatement]:
        try:
            fields = untrusted_json.load(content, FILE_NAME)
            if fields["version"] != FILE_VERSION:
                raise exception.UnsupportedError(
                    f"{self._path} has version {fields['version']!r:.20}, "
                    f"this release reads {FILE_VERSION}"
                )
            if fields["repository"] != self._repository_id:
                return {}
            return {_key(key): _seen(seen) for key, seen in fields["keys"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(f"{self._path} is malformed") from error


def path_in(state_path: str) -> str:
    """Return the path of the file on a host.

    :param state_path: ``[DEFAULT] state_path``.
    """
    return os.path.join(state_path, "agent", FILE_NAME)


def _key(text: str) -> str:
    if not _KEY.match(text):
        raise ValueError("no key")
    return text


def _seen(fields: Any) -> SeenStatement:
    index = fields["index"]
    if not isinstance(index, str) or len(index) > 64:
        raise ValueError("index")
    return SeenStatement(
        index,
        untrusted_json.whole(fields["generation"], "generation", highest=_NUMBER_MAX),
        untrusted_json.whole(fields["time"], "time", highest=_NUMBER_MAX),
    )
