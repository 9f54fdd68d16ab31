"""Chunks that only one image has: in no other image, volume, snapshot or attached manifest."""

import dataclasses
import logging
from collections.abc import Iterator

from acstor import exception
from acstor.repository.images import usage
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository
from acstor.repository.volumes import record_refs

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class ExclusiveChunks:
    """Chunks of an image, by whether others need them."""

    digests: tuple[bytes, ...]
    """Of those that nobody else needs, ascending."""
    shared: int
    """Number of those that somebody else needs, too."""


def find_exclusive_chunks(
    repository: Repository, image_id: str, progress: Progress | None = None
) -> ExclusiveChunks:
    """Return the chunks of an image, registered or attached somewhere.

    Every manifest of the repository is read: some 70 bytes of memory for each chunk of the image,
    and a second or so for each million chunks of all others.

    :param image_id: in canonical form.
    :raises NotFoundError: when nothing says what the image consists of.
    :raises CorruptError: and the like when that cannot be read.
    """
    progress = progress or Progress()
    own, others = _manifests(repository, image_id)
    if not own:
        raise exception.NotFoundError(
            f"image {image_id} is not registered, and no host has it attached",
            hint="'acstor image list' shows the images that are",
        )
    digests: set[bytes] = set()
    for manifest in own:
        digests.update(_digests(repository, manifest))
    total = len(digests)
    progress.begin("comparing with other disks", len(others))
    for manifest in others:
        if digests:
            _subtract(repository, manifest, digests)
        progress.advance(1)
    return ExclusiveChunks(tuple(sorted(digests)), total - len(digests))


def _manifests(repository: Repository, image_id: str) -> tuple[set[str], set[str]]:
    """Return the manifests of the image, and those of all others."""
    origin = repository.origin
    own: set[str] = set()
    others: set[str] = set()
    for image in repository.list_images():
        (own if image.id == image_id else others).add(image.record.manifest)
    for volume_id in list(record_refs.volume_ids(origin)):
        volume = record_refs.find_volume(origin, volume_id)
        if volume is not None:
            pending = volume.record.pending
            found = (volume.record.manifest, pending.disk.manifest if pending else None)
            others.update(manifest for manifest in found if manifest is not None)
    for snapshot_id in list(record_refs.snapshot_ids(origin)):
        snapshot = record_refs.find_snapshot(origin, snapshot_id)
        if snapshot is not None and snapshot.record.manifest is not None:
            others.add(snapshot.record.manifest)
    for record in usage.read_all(origin).values():
        for manifest, user in record.manifests.items():
            (own if user == image_id else others).add(manifest)
    # A volume that is a clone of the image has the same manifest: all chunks are shared then.
    return own, others


def _digests(repository: Repository, manifest: str) -> Iterator[bytes]:
    for _, entry in repository.load_manifest(manifest).entries():
        yield entry.digest


def _subtract(repository: Repository, manifest: str, digests: set[bytes]) -> None:
    """Take away what another disk needs, too."""
    try:
        for digest in _digests(repository, manifest):
            digests.discard(digest)
    except (exception.NotFoundError, exception.CorruptError) as error:
        # Its chunks may then be discarded, too: hosts have them again from the origin.
        LOG.warning("manifest %s is not looked at: %s", manifest, exception.one_line(error))
