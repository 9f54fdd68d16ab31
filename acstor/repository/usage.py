"""Which images the instances of each host use: the refs ``usage/<host>`` in the origin.

Every host writes its own; whoever withdraws images reads them all. What a host that is gone has
written stays until an operator says that it will not come back (``acstor host forget``): its
instances may be evacuated or come back with it.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from acstor import exception
from acstor.origin import ref_replacement
from acstor.origin.base import Origin
from acstor.repository.layout import canonical_image_id

USAGE_PREFIX = "usage/"
USAGE_VERSION = 1


@dataclass(frozen=True)
class Usage:
    """What the instances of one host use."""

    images: frozenset[str] = frozenset()
    """Ids of the images that overlays on the host refer to."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {"version": USAGE_VERSION, "images": sorted(self.images)}
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, host: str) -> "Usage":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        malformed = exception.CorruptError(
            f"what host {host} says of the images in use there is malformed",
            hint=f"restart acstor-agent on {host}; it writes it anew",
        )
        try:
            fields = json.loads(content)
            version, images = fields["version"], fields["images"]
        except (ValueError, TypeError, KeyError) as error:
            raise malformed from error
        if version != USAGE_VERSION:
            raise exception.UnsupportedError(
                f"the images in use on host {host} are written in version {version!r}"
            )
        if not isinstance(images, list):
            raise malformed
        try:
            ids = frozenset(canonical_image_id(image) for image in images)
        except exception.InvalidError as error:
            raise malformed from error
        return cls(ids)


def usage_ref(host: str) -> str:
    """Return the name of the ref of one host."""
    return USAGE_PREFIX + host


def read_usage(origin: Origin, host: str) -> Usage | None:
    """Return what a host has written; None: nothing yet.

    :raises CorruptError: and the like when the ref is not readable.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = origin.get_ref(usage_ref(host))
    return None if ref is None else Usage.parse(ref.content, host)


def read_all(origin: Origin) -> dict[str, Usage]:
    """Return what every host has written, by host; errors as in :func:`read_usage`.

    One ref that is not readable is an error of the whole: nobody knows then what that host uses.
    """
    found = {}
    for name in origin.list_refs(USAGE_PREFIX):
        host = name.removeprefix(USAGE_PREFIX)
        usage = read_usage(origin, host)
        if usage is not None:
            found[host] = usage
    return found


def write_usage(origin: Origin, host: str, images: Collection[str]) -> bool:
    """Write what the instances of a host use, where that is not what the ref says already.

    :returns: whether the ref was changed.
    :raises ConflictError: when somebody else writes all the time (two hosts with one name).
    :raises UnavailableError: when the origin cannot be reached.
    """
    return ref_replacement.replace(origin, usage_ref(host), Usage(frozenset(images)).encode())


def forget_usage(origin: Origin, host: str) -> bool:
    """Remove what a host has written; errors as in :func:`write_usage`.

    :returns: whether there was anything.
    """
    return ref_replacement.replace(origin, usage_ref(host), None)
