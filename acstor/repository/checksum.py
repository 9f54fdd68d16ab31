"""The checksum that was declared for an image file, computed beside its registration."""

import dataclasses
import hashlib
import os
import threading

from acstor import exception
from acstor.repository.source import base

ALGORITHMS = ("md5", "sha256", "sha512")
"""Hash algorithms that Glance declares: ``checksum`` is md5, ``os_hash_value`` one of the
others."""
_READ_SIZE = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Checksum:
    """A declared checksum of an image file (the file, not the disk in it)."""

    algorithm: str
    value: str
    """Hexadecimal, lower case."""

    @classmethod
    def parse(cls, text: str) -> "Checksum":
        """Read ``algorithm:hexadecimal``.

        :raises InvalidError: when it is malformed or the algorithm is not supported.
        """
        algorithm, _, value = text.partition(":")
        value = value.lower()
        length = (
            hashlib.new(algorithm, usedforsecurity=False).digest_size * 2
            if (algorithm in ALGORITHMS)
            else 0
        )
        if not length or len(value) != length or set(value) - set("0123456789abcdef"):
            raise exception.InvalidError(
                f"checksum {text!r} is malformed",
                hint=f"write one of {', '.join(ALGORITHMS)}, a colon and the hexadecimal digits",
            )
        return cls(algorithm, value)

    def __str__(self) -> str:
        """Return ``algorithm:hexadecimal``."""
        return f"{self.algorithm}:{self.value}"


class ChecksumThread:
    """Computes a checksum of an open file in a thread of its own.

    It reads the file a second time, but from the page cache: it runs beside the scan, over the
    same bytes. A scan in pieces and with holes left out could not feed it.
    """

    def __init__(self, file: base.SourceFile, declared: Checksum) -> None:
        """Start; the file stays open until :meth:`close`."""
        self._declared = declared
        self._file = file
        self._failure: exception.AcstorError | None = None
        self._value = ""
        self._is_cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acstor-checksum", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        digest = hashlib.new(self._declared.algorithm, usedforsecurity=False)
        buffer = bytearray(_READ_SIZE)
        offset = 0
        try:
            while not self._is_cancelled.is_set():
                count = os.preadv(self._file.descriptor, [buffer], offset)
                if count == 0:
                    break
                digest.update(memoryview(buffer)[:count])
                offset += count
        except OSError as error:
            self._failure = exception.UnavailableError(f"{self._file.path}: {error.strerror}")
        self._value = digest.hexdigest()

    def check(self) -> None:
        """Wait for the checksum and compare.

        :raises ChecksumMismatchError: when it is not the declared one.
        :raises ImageRefusedError: when the file was changed.
        :raises UnavailableError: when the file could not be read.
        """
        self._thread.join()
        if self._failure:
            raise self._failure
        self._file.check_unchanged()
        if self._value != self._declared.value:
            raise exception.ChecksumMismatchError(
                f"{self._file.path} has {self._declared.algorithm} {self._value}, "
                f"declared is {self._declared.value}",
                hint="download the image again, or correct the declared checksum",
            )

    def close(self) -> None:
        """Stop, early if need be."""
        self._is_cancelled.set()
        self._thread.join()
