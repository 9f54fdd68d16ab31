"""Manifests as far as a host needs them to attach an image: of a long one of format 2 the front.

The data plane fetches the other pages, those first that a guest needs, and verifies each. A
manifest that is no longer than the round trips of pages are worth is brought whole, and so is one
of format 1.
"""

from dataclasses import dataclass

from acstor import exception
from acstor.origin.base import ObjectStore
from acstor.repository import disk_manifest, layout

FRONT_BYTES = 64 << 10
"""Bytes of a manifest that are read first: a seventieth of a second at 40 Mbit/s."""
WHOLE_BYTES_MAX = 1 << 20
"""Longest manifest of format 2 that is brought whole, bytes."""


@dataclass(frozen=True)
class FetchedManifest:
    """The first bytes of a manifest, or all."""

    disk_id: str
    content: bytes
    size: int
    """Of all of it, bytes."""

    @property
    def is_partial(self) -> bool:
        """True if there is more than was fetched."""
        return len(self.content) < self.size


def fetch_front(objects: ObjectStore, digest: str) -> FetchedManifest:
    """Return the beginning of a manifest, of which the header is checked; all of a short one.

    :raises NotFoundError: when the origin does not have it.
    :raises CorruptError: when it is damaged there, as far as it was fetched.
    """
    key = layout.manifest_key(digest)
    size = objects.size(key)
    if size > disk_manifest.SIZE_MAX:
        raise exception.CorruptError(f"manifest {digest} has {size} bytes, more than any has")
    front = objects.get_range(key, 0, min(size, FRONT_BYTES))
    if size <= WHOLE_BYTES_MAX or not disk_manifest.is_paged(front):
        rest = objects.get_range(key, len(front), size - len(front)) if size > len(front) else b""
        return _checked(digest, front + rest)
    found = disk_manifest.PagedManifest(
        digest, size, lambda offset, length: front[offset : offset + length]
    )
    return FetchedManifest(found.disk_id, front, size)


def fetch_whole(objects: ObjectStore, digest: str) -> FetchedManifest:
    """Return all of a manifest, checked.

    :raises NotFoundError: when the origin does not have it.
    :raises CorruptError: when it is damaged there.
    """
    content = objects.get(layout.manifest_key(digest), disk_manifest.SIZE_MAX)
    return _checked(digest, content)


def _checked(digest: str, content: bytes) -> FetchedManifest:
    found = disk_manifest.parse_manifest(digest, content)
    # All of it is here: what is damaged is refused now, and not when a guest reads.
    found.check()
    return FetchedManifest(found.disk_id, content, len(content))
