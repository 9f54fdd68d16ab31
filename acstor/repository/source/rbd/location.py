"""Locations of images in RBD, as Glance writes them: ``rbd://fsid/pool/image/snapshot``.

Glance may let users write locations themselves, and a location names any image of any pool. So a
location counts only where it names what Glance's own store has made for that image: the RBD image
of the same name, and its snapshot ``snap``, in a pool that the operator has named.
"""

import dataclasses
import urllib.parse
from collections.abc import Collection, Iterable

SCHEME = "rbd://"
SNAPSHOT = "snap"
"""Name of the snapshot that Glance makes of each image."""
LENGTH_MAX = 1024
"""Longest location, characters; longer ones are none of RBD."""
LOCATIONS_MAX = 64
"""Most locations of an image that are looked at."""


@dataclasses.dataclass(frozen=True, slots=True)
class RbdLocation:
    """A snapshot of an RBD image."""

    fsid: str
    """Id of the Ceph cluster."""
    pool: str
    image: str
    snapshot: str

    def __str__(self) -> str:
        """Return it for messages: without the cluster."""
        return f"rbd:{self.pool}/{self.image}@{self.snapshot}"

    @classmethod
    def parse(cls, text: str) -> "RbdLocation | None":
        """Read a location; None where it is none of RBD, or malformed."""
        if not text.startswith(SCHEME) or len(text) > LENGTH_MAX:
            return None
        parts = [urllib.parse.unquote(part) for part in text.removeprefix(SCHEME).split("/")]
        # Of one part only, the name of an image, are locations of very old releases.
        if len(parts) != 4 or not all(part and part.isprintable() for part in parts):
            return None
        return cls(*parts)


def find_location(
    image_id: str, locations: Iterable[str], pools: Collection[str]
) -> RbdLocation | None:
    """Return the location at which Glance's store has an image, None where none is believed.

    :param image_id: of Glance.
    :param pools: those that Glance stores images in.
    """
    for text in list(locations)[:LOCATIONS_MAX]:
        found = RbdLocation.parse(text)
        if found is None or found.pool not in pools:
            continue
        if (found.image, found.snapshot) == (image_id, SNAPSHOT):
            return found
    return None
