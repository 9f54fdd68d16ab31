"""One version of a ref of a POSIX origin: names, token, and the file's format.

The format is in ``reference/formats/repository``. A file is complete before it gets its name, and
never changes.
"""

import dataclasses
import hashlib
import re
import secrets

from acstor import exception
from acstor.origin import base

REF_FILE_VERSION = 1
"""Version of the files that this build writes, and the only one that it reads."""
HEADER_BYTES_MAX = 768
"""Longest first line of a file, with its line end."""
HISTORY_LENGTH = 64
"""Number of preceding versions that a version names: a writer overtaken by fewer finds out how he
fared."""
_HISTORY_DIGITS = 8

_MAGIC = "acstor-ref"
_HEADER = re.compile(rb"acstor-ref (\d{1,9}) ?([^\n]*)\n")
_FIELDS = re.compile(
    rb"(content|removed) ([0-9a-f]{16}) (\d{1,8}) ([0-9a-f]{32}) (-|(?:[0-9a-f]{8}){1,64})"
)
_NAME = re.compile(r"([0-9a-f]{16})\.(0|[1-9][0-9]{0,17})\Z")
_DAMAGED = "damaged-"
_TOKEN = re.compile(rf"([0-9a-f]{{16}})\.([1-9][0-9]{{0,17}})\.((?:{_DAMAGED})?[0-9a-f]{{16}})\Z")


def random_nonce() -> str:
    """Return 16 hexadecimal digits that nobody has chosen before."""
    return secrets.token_hex(8)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Position of a ref's file: an incarnation, from creation to removal, and a number in it."""

    incarnation: str
    number: int
    """From 1 on; 0 is the file that says that this incarnation is the ref's present one."""

    @property
    def name(self) -> str:
        """Name of the file in the ref's folder."""
        return f"{self.incarnation}.{self.number}"

    @classmethod
    def parse(cls, name: str) -> "Place | None":
        """Return what a file of that name is, None when it is none of a ref."""
        match = _NAME.match(name)
        return None if match is None else cls(match[1], int(match[2]))

    def after(self, count: int = 1) -> "Place":
        """Return the place so many versions later (negative: earlier)."""
        return Place(self.incarnation, self.number + count)


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One state of a ref: the place of its file, and what tells it from a later one there."""

    place: Place
    nonce: str
    """Of the file; of a damaged one made from all that is in it."""

    @property
    def is_damaged(self) -> bool:
        """True if the file is not what was written."""
        return self.nonce.startswith(_DAMAGED)

    @classmethod
    def of_damaged(cls, place: Place, file: bytes) -> "State":
        """Return the state that a ref is in while its file there is damaged, and has this in it."""
        return cls(place, f"{_DAMAGED}{_digest(file)[:16]}")

    @property
    def token(self) -> str:
        """The state's token, see :class:`acstor.origin.base.Ref`."""
        return f"{self.place.name}.{self.nonce}"

    @classmethod
    def parse(cls, token: str) -> "State | None":
        """Return the state that a token names, None when it is no token of this layout."""
        match = _TOKEN.match(token)
        return None if match is None else cls(Place(match[1], int(match[2])), match[3])


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The first line of a file."""

    is_removed: bool
    """True if the ref was removed by this version; the content is then the ref's name."""
    nonce: str
    length: int
    """Of the content, bytes."""
    digest: str
    """First 32 hexadecimal digits of the content's SHA-256."""
    history: str = ""
    """First 8 digits of the nonces of the versions before, the last one first."""

    @classmethod
    def of(
        cls, content: bytes, before: "Header | None" = None, *, is_removed: bool = False
    ) -> "Header":
        """Return the header of a new version, the one after ``before``."""
        history = "" if before is None else before.nonce[:_HISTORY_DIGITS] + before.history
        history = history[: HISTORY_LENGTH * _HISTORY_DIGITS]
        return cls(is_removed, random_nonce(), len(content), _digest(content), history)

    def follows(self, nonce: str, distance: int) -> bool | None:
        """Return whether the version so many before has that nonce; None: it is too long ago.

        :param distance: 1 is the one just before.
        """
        start = (distance - 1) * _HISTORY_DIGITS
        found = self.history[start : start + _HISTORY_DIGITS] if distance > 0 else ""
        return found == nonce[:_HISTORY_DIGITS] if found else None

    def encode(self) -> bytes:
        """Return the line."""
        kind = "removed" if self.is_removed else "content"
        fields = f"{kind} {self.nonce} {self.length} {self.digest} {self.history or '-'}"
        return f"{_MAGIC} {REF_FILE_VERSION} {fields}\n".encode("ascii")

    @classmethod
    def parse(cls, start: bytes, path: str) -> tuple["Header", int]:
        """Return the header and its length, bytes.

        :param start: of the file, :data:`HEADER_BYTES_MAX` bytes at least where it has them.
        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is none.
        """
        match = _HEADER.match(start[:HEADER_BYTES_MAX])
        if match is None:
            raise _damaged(path)
        if int(match[1]) != REF_FILE_VERSION:
            raise exception.UnsupportedError(
                f"{path} is a ref of version {int(match[1])}, this release reads {REF_FILE_VERSION}"
            )
        fields = _FIELDS.fullmatch(match[2])
        if fields is None:
            raise _damaged(path)
        kind, nonce, length, digest, history = (field.decode("ascii") for field in fields.groups())
        parsed = cls(kind == "removed", nonce, int(length), digest, history.replace("-", ""))
        return parsed, match.end()


FILE_BYTES_MAX = HEADER_BYTES_MAX + base.REF_SIZE_MAX
"""Largest file."""


def parse_file(file: bytes, path: str) -> tuple[Header, bytes]:
    """Return header and content of a whole file.

    :raises UnsupportedError: when a newer release wrote it.
    :raises CorruptError: when it is not what was written.
    """
    header, start = Header.parse(file, path)
    content = file[start:]
    if len(content) != header.length or _digest(content) != header.digest:
        raise _damaged(path)
    return header, content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _damaged(path: str) -> exception.CorruptError:
    return exception.CorruptError(
        f"{path} is not what was written as a ref",
        hint="look for errors of the origin's disk; an NFS export must be sync, not async. The "
        "versions before are beside it: removing this one makes the last of them the ref",
    )
