"""A copy of a ref in a member that is not the home: the ref's name and content in another ref."""

import dataclasses
import hashlib
import json

from acstor import exception, untrusted_json
from acstor.origin import keys

COPY_VERSION = 1
"""Version of copies that this build writes; it reads this one only."""
COPIES_PREFIX = "ref-copies/"
"""Folder of the copies."""
HEADER_LENGTH_MAX = 1024
"""Longest first line, bytes: a name of 255 characters and two numbers fit well."""


@dataclasses.dataclass(frozen=True, slots=True)
class RefCopy:
    """Name and content of a ref at one moment."""

    name: str
    content: bytes

    def encode(self) -> bytes:
        """Return the copy: a line of JSON, and the ref's content."""
        header = {
            "version": COPY_VERSION,
            "name": self.name,
            "size": len(self.content),
            "sha256": hashlib.sha256(self.content).hexdigest(),
        }
        return json.dumps(header, sort_keys=True).encode() + b"\n" + self.content


def copy_name(name: str) -> str:
    """Return the name of the ref that holds the copy of a ref.

    A digest, as a name with a folder before it might be too long or too deep for a name.
    """
    return COPIES_PREFIX + hashlib.sha256(name.encode()).hexdigest()


def parse(content: bytes) -> RefCopy:
    """Read a copy.

    :raises CorruptError: when it is damaged.
    :raises UnsupportedError: when a newer release wrote it.
    """
    line, is_there, body = content.partition(b"\n")
    try:
        if not is_there or len(line) > HEADER_LENGTH_MAX:
            raise ValueError("it has no header")
        fields = untrusted_json.load(line, "the header of a copy")
        version = fields["version"]
        if version == COPY_VERSION:
            name = keys.validate_ref_name(str(fields["name"]))
            if len(body) != fields["size"] or (
                hashlib.sha256(body).hexdigest() != fields["sha256"]
            ):
                raise ValueError("its digest is another one")
            return RefCopy(name, body)
    except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
        raise exception.CorruptError(
            f"a copy of a ref is damaged: {error}", hint="the next pass of copies replaces it"
        ) from error
    raise exception.UnsupportedError(f"a copy of a ref has version {version!r:.20}")
