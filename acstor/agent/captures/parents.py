"""The version before, with which a disk is compared while it is read, and what has to be read.

The own file of a disk says what is unlike its base, not what is unlike the version before. So all
of it is read and compared by digest; and of the rest, which is the base's, only what the version
before has otherwise than the base: a guest that was rebuilt has an empty file on the same base.
"""

import array
import bisect
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from acstor import exception
from acstor.agent.captures.sources.base import LayeredExtent
from acstor.repository.disk_manifest import DEPTH_MAX, PagedManifest
from acstor.repository.images.usage import base_name
from acstor.repository.repository import Repository
from acstor.repository.source.base import Extent
from acstor.repository.versions import delta_levels
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.request import CaptureRequest


@dataclass(frozen=True)
class Comparison:
    """Content with which a disk is compared."""

    parent: PagedManifest
    version: str | None
    """Version whose content it is; None: it is the base image's."""
    unlike_base: "array.array[int] | None" = field(default_factory=lambda: array.array("Q"))
    """Indexes of chunks that it has otherwise than the disk's base, ascending; None: that is not
    known, and the whole disk is read."""


def find_comparison(
    store: VersionStore,
    size_bytes: int,
    parent: str | None,
    base_image: str | None,
    backing_file: str | None,
) -> Comparison | None:
    """Return with what a disk is compared, None: with nothing, it is stored as a whole.

    :param parent: id of the version before.
    :param base_image: image that the disk was made of.
    :param backing_file: that the disk's own file names.
    """
    base = _base_of(store.repository, base_image, backing_file)
    if parent is not None:
        version = store.find(parent)
        record = None if version is None else version.record
        if record is not None and record.is_restorable and record.manifest and not record.logs:
            found = _usable(store.repository, record.manifest, size_bytes)
            if found is not None:
                return Comparison(found, parent, _unlike_base(store.repository, found, base))
    return None if base is None or base.size_bytes > size_bytes else Comparison(base, None)


def scope_of(store: VersionStore, request: CaptureRequest) -> str | None:
    """Return the scope of the names that chunks get: that of the base image, unless one is asked.

    Names of another scope are others for the same content: nothing would be found again.
    """
    if request.version.dedup_scope is not None or request.base_image is None:
        return request.version.dedup_scope
    image = store.repository.find_image(request.base_image)
    return None if image is None else image.record.dedup_scope


def is_base_of(backing_file: str | None, image_id: str) -> bool:
    """Return whether a file is Nova's base file of an image, by its name."""
    return backing_file is not None and os.path.basename(backing_file) == base_name(image_id)


def wanted_extents(
    extents: Iterable[LayeredExtent], comparison: Comparison | None, chunk_size: int
) -> Iterator[Extent]:
    """Yield what has to be read of a disk."""
    unlike = None if comparison is None else comparison.unlike_base
    for extent in extents:
        if extent.is_own or unlike is None:
            yield Extent(extent.start, extent.end, extent.is_zero)
            continue
        first = bisect.bisect_left(unlike, extent.start // chunk_size)
        end = bisect.bisect_left(unlike, -(-extent.end // chunk_size))
        for index in unlike[first:end]:
            start = max(extent.start, index * chunk_size)
            yield Extent(start, min(extent.end, (index + 1) * chunk_size), extent.is_zero)


def _base_of(
    repository: Repository, base_image: str | None, backing_file: str | None
) -> PagedManifest | None:
    """Return the manifest of the base image, where the disk is really based on it."""
    if base_image is None or not is_base_of(backing_file, base_image):
        return None
    image = repository.find_image(base_image)
    return None if image is None else _usable(repository, image.record.manifest, None)


def _usable(repository: Repository, digest: str, size_bytes: int | None) -> PagedManifest | None:
    """Return a manifest over which a delta may be written; see :class:`.DeltaCapture`."""
    try:
        found = repository.load_manifest(digest)
    except exception.NotFoundError:
        return None
    is_usable = isinstance(found, PagedManifest) and found.chunk_size == repository.chunk_size
    if not is_usable or not isinstance(found, PagedManifest) or len(found.names) > DEPTH_MAX:
        return None
    return found if size_bytes is None or found.size_bytes <= size_bytes else None


def _unlike_base(
    repository: Repository, parent: PagedManifest, base: PagedManifest | None
) -> "array.array[int] | None":
    if base is None or parent.names[-1] != base.digest:
        return None
    chain = delta_levels.chain_of(repository.origin, parent)
    return array.array("Q", sorted(delta_levels.take_in(repository.origin, {}, chain[:-1])))
