"""A journal of decisions, as JSON lines: of the policy service, and of who sends members to sleep.

The page is ``doc/source/reference/formats/policy-journal.rst``. A file that has grown to its bound
is renamed ``.1``, what was ``.1`` becomes ``.2``, and so on; the oldest goes.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from acstor import exception, untrusted_json

DECISION_LOG_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""
LINE_BYTES_MAX = 64 << 20
_MODE = 0o640
_LINE_START = b'{"version": '


class DecisionLog:
    """Appends records to a file.

    :param path: of the newest file; its directory is made.
    :param bytes_max: at which a file is put aside.
    :param files: that are kept, the newest included.
    """

    def __init__(self, path: str, bytes_max: int, files: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files = files

    def append(self, record: Mapping[str, Any], at_ms: int) -> None:
        """Append a record, and have it on the disk when this returns.

        :param at_ms: POSIX time, milliseconds.
        :raises OSError: when it cannot be written.
        """
        line = json.dumps(
            {"version": DECISION_LOG_VERSION, "at_ms": at_ms, **record}, allow_nan=False
        )
        content = line.encode() + b"\n"
        if self._is_torn():
            content = b"\n" + content
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._path).st_size + len(content) > self._bytes_max:
                self._rotate()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, _MODE)
        try:
            written = os.write(descriptor, content)
            if written < len(content):
                raise OSError(f"only {written} of {len(content)} bytes were written")
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def _is_torn(self) -> bool:
        """Return whether a writer that was killed left a line unfinished."""
        try:
            with open(self._path, "rb") as file:
                if not file.seek(0, os.SEEK_END):
                    return False
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        for number in range(self._files - 1, 0, -1):
            older = f"{self._path}.{number - 1}" if number > 1 else self._path
            with contextlib.suppress(FileNotFoundError):
                os.replace(older, f"{self._path}.{number}")
        if self._files == 1:
            os.remove(self._path)


def read_records(path: str) -> Iterator[dict[str, Any]]:
    """Yield the records of one file, oldest first; the torn line of a killed writer is left out.

    :raises InvalidError: for a line that is no record.
    :raises UnsupportedError: for a record of a newer release.
    :raises OSError: when the file cannot be read.
    """
    with open(path, "rb") as source:
        number = 0
        while line := source.readline(LINE_BYTES_MAX + 1):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) > LINE_BYTES_MAX:
                    raise exception.InvalidError(f"{path}:{number}: the line is too long")
                continue  # the last one, torn
            try:
                record = untrusted_json.load(line, "a record")
                version = record["version"]
            except (ValueError, TypeError, KeyError) as error:
                head = line[: len(_LINE_START)].rstrip(b"\n")
                is_record = isinstance(error, KeyError | TypeError)
                if _LINE_START.startswith(head) and not is_record:
                    continue  # torn, and ended by the next writer
                raise exception.InvalidError(f"{path}:{number}: no record") from error
            if version != DECISION_LOG_VERSION:
                raise exception.UnsupportedError(f"{path}:{number}: version {version!r:.20}")
            yield record
