"""Beginning of a revocation: what hosts are to discard is written down, then the image goes."""

import time
from collections.abc import Callable

from acstor.repository.images import image_registry, revocation
from acstor.repository.images.exclusive_chunks import find_exclusive_chunks
from acstor.repository.images.revocation import Revocation
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository


def begin(
    repository: Repository,
    image_id: str,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> Revocation:
    """Revoke an image, or find that it was revoked and is not registered.

    Repeating it, after whatever was killed, goes on where it was.

    :param image_id: in canonical form.
    :param clock: seconds since the epoch, for people.
    :raises NotFoundError: when nothing says what the image consists of.
    :raises ConflictError: when somebody else changes the image at the same time.
    """
    origin = repository.origin
    image = repository.find_image(image_id)
    known = revocation.find(origin, image_id)
    if image is None and known is not None:
        return known
    chunks = find_exclusive_chunks(repository, image_id, progress)
    written = revocation.write(
        origin,
        Revocation(
            image_id,
            image.record.name if image else "",
            known.time if known else image_registry.format_time(clock()),
            chunks.shared,
            hosts=known.hosts if known else {},
        ),
        chunks.digests,
    )
    # Last: from now on no manifest says what the image consisted of.
    if image is not None:
        repository.remove_image(image_id, image.token)
    return written
