"""Public keys that a machine trusts: the files ``*.pub`` of one directory."""

import os
from collections.abc import Iterable, Mapping

from acstor import exception
from acstor.repository.signing.key_files import PublicKey, check_unchangeable, read_public_key

SUFFIX = ".pub"
KEYS_MAX = 64
"""Most keys of a directory: a rotation needs two."""


class TrustedKeys:
    """The keys in a directory, as they are; one that is taken out is not trusted any more.

    A file that is no key, or that others may change, is a problem and no key. A directory that is
    not there has none. One that cannot be read now leaves the keys as they were.

    :param directory: None: there is none.
    :param others: keys that are trusted besides, whatever is in the directory.
    """

    def __init__(self, directory: str | None, others: Iterable[PublicKey] = ()) -> None:
        """Read the directory."""
        self._directory = directory
        self._others = {key.id: key for key in others}
        self._seen: object = None
        self._keys: dict[str, PublicKey] = {}
        self._problems: dict[str, str] = {}
        self.refresh()

    @property
    def problems(self) -> Mapping[str, str]:
        """By path, why what is there is not used."""
        return self._problems

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys.keys() | self._others.keys())

    def including(self, key: PublicKey) -> "TrustedKeys":
        """Return these keys and another one."""
        return TrustedKeys(self._directory, [*self._others.values(), key])

    def find(self, key_id: str) -> PublicKey | None:
        """Return the key of that id, None when it is not trusted."""
        return self._keys.get(key_id) or self._others.get(key_id)

    def refresh(self) -> bool:
        """Read the directory where it has changed; return whether other keys are trusted now."""
        if self._directory is None:
            return False
        try:
            seen = _look(self._directory)
        except OSError as error:
            self._seen = None
            self._problems = {self._directory: f"cannot be read: {error.strerror}"}
            return False
        if seen == self._seen:
            return False
        before = self._keys
        self._keys, self._problems = self._read([name for name, _ in seen])
        self._seen = seen
        return self._keys != before

    def _read(self, names: list[str]) -> tuple[dict[str, PublicKey], dict[str, str]]:
        keys: dict[str, PublicKey] = {}
        problems: dict[str, str] = {}
        directory = self._directory or ""
        for name in names[:KEYS_MAX]:
            path = os.path.join(directory, name)
            try:
                check_unchangeable(directory, os.stat(directory))
                key = read_public_key(path)
            except exception.ConfigurationError as error:
                problems[path] = exception.one_line(error, with_hint=True)
            except OSError as error:
                problems[path] = str(error.strerror)
            else:
                keys[key.id] = key
        if len(names) > KEYS_MAX:
            problems[directory] = f"has more than {KEYS_MAX} keys: the rest is not used"
        return keys, problems


def _look(directory: str) -> list[tuple[str, object]]:
    """Return name and state of each key file, sorted; nothing where there is no directory."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIX))
        above = os.stat(directory)
    except FileNotFoundError:
        return []
    return [(name, (_state(os.path.join(directory, name)), _state_of(above))) for name in names]


def _state(path: str) -> object:
    try:
        return _state_of(os.stat(path))
    except OSError as error:
        return error.errno


def _state_of(found: os.stat_result) -> object:
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns, found.st_mode, found.st_uid
