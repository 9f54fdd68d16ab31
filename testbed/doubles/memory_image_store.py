"""Glance in memory, as flows see it."""

import datetime
import hashlib
from collections.abc import Iterator, Mapping

from acstor import exception
from acstor.versions.services.image_store import (
    ORIGINAL_PROPERTY,
    TASK_PROPERTY,
    Content,
    MadeImage,
    NewImage,
    StoredImage,
)


class MemoryImages:
    """Properties of images; see :class:`acstor.versions.services.images.Images`."""

    def __init__(self) -> None:
        self.found: dict[str, Mapping[str, str]] = {}

    def properties(self, image_id: str) -> Mapping[str, str]:
        return self.found.get(image_id, {})


class MemoryImageStore:
    """Images that are made; see :class:`acstor.versions.services.image_store.ImageStore`.

    As in Glance an id serves once, and a broken upload is never gone on with.

    :ivar contents: what the images have that are active, by their ids.
    :ivar refusals: raised by the next uploads, one by each, after half of what comes.
    """

    def __init__(self) -> None:
        self.images: dict[str, NewImage] = {}
        self.contents: dict[str, bytes] = {}
        self.deleted: set[str] = set()
        self.refusals: list[exception.AcstorError] = []
        self.quota_bytes: int | None = None
        self.is_rotting = False
        self._begun: set[str] = set()

    def find(self, image_id: str) -> StoredImage | None:
        image = self.images.get(image_id)
        if image is None:
            return None
        content = self.contents.get(image_id)
        return StoredImage(
            id=image_id,
            status="active" if content is not None else "queued",
            project=image.project,
            size_bytes=None if content is None else len(content),
            hash_algorithm="sha512",
            hash_value=None if content is None else hashlib.sha512(content).hexdigest(),
        )

    def create(self, image: NewImage) -> None:
        if image.id in self.deleted:
            raise exception.ConflictError(f"the id {image.id} was used")
        if any(name.startswith("os_glance") for name in image.properties):
            raise exception.InvalidError("a property is reserved")
        there = self.images.setdefault(image.id, image)
        if there.project != image.project or image.id in self.contents:
            raise exception.ConflictError(f"there is another image {image.id}")

    def upload(self, image_id: str, content: Content) -> None:
        if image_id not in self.images:
            raise exception.NotFoundError(f"there is no image {image_id}")
        if image_id in self._begun:
            raise exception.ConflictError(f"image {image_id} is being saved")
        if self.quota_bytes is not None and len(content) > self.quota_bytes:
            raise exception.InvalidError("over the quota", hint="look at the project's quota")
        self._begun.add(image_id)
        found = bytearray()
        for piece in content:
            found += piece
            if self.refusals:
                raise self.refusals.pop(0)
        if self.is_rotting:
            found[len(found) // 2] ^= 1
        self.contents[image_id] = bytes(found)

    def delete(self, image_id: str) -> None:
        if self.images.pop(image_id, None) is not None:
            self.deleted.add(image_id)
            self.contents.pop(image_id, None)

    def made(self, since: datetime.datetime) -> Iterator[MadeImage]:
        del since
        for image in list(self.images.values()):
            yield MadeImage(
                image.id,
                image.project,
                image.properties.get(TASK_PROPERTY),
                image.properties.get(ORIGINAL_PROPERTY) == image.id,
            )
