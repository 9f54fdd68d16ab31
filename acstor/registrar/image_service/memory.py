"""An image service in memory."""

import dataclasses
import threading

from acstor import exception
from acstor.registrar.image_service import base


class MemoryImageService(base.ImageService):
    """Images that tests and trials put into it.

    :param has_ranges: whether data can be read from the middle on.
    """

    def __init__(self, *, has_ranges: bool = True) -> None:
        """Begin without images."""
        self.has_ranges = has_ranges
        self._lock = threading.Lock()
        self._images: dict[str, tuple[base.ServiceImage, bytes]] = {}

    def put(self, image: base.ServiceImage, content: bytes | None = None) -> None:
        """Add an image or change it; its data stay where ``content`` is None."""
        with self._lock:
            kept = self._images.get(image.id, (image, b""))[1]
            self._images[image.id] = (image, kept if content is None else content)

    def change(self, image_id: str, **fields: object) -> None:
        """Change fields of an image."""
        with self._lock:
            image, content = self._images[image_id]
            self._images[image_id] = (dataclasses.replace(image, **fields), content)  # type: ignore[arg-type]

    def remove(self, image_id: str) -> None:
        """Delete an image."""
        with self._lock:
            del self._images[image_id]

    def list_images(self) -> list[base.ServiceImage]:
        """Return all images."""
        with self._lock:
            return [image for image, _ in self._images.values()]

    def find_image(self, image_id: str) -> base.ServiceImage | None:
        """Return an image."""
        with self._lock:
            found = self._images.get(image_id)
        return found[0] if found else None

    def open_data(self, image_id: str, offset: int = 0) -> base.ImageData:
        """Begin to read."""
        with self._lock:
            found = self._images.get(image_id)
        if found is None:
            raise exception.NotFoundError(f"the image service has no image {image_id}")
        if found[0].size_bytes is None:
            raise exception.UnavailableError(f"image {image_id} has no data")
        return _MemoryData(found[1], offset if self.has_ranges else 0)


class _MemoryData(base.ImageData):
    def __init__(self, content: bytes, offset: int) -> None:
        self.offset = offset
        self._content = content
        self._position = offset

    def read(self, size: int) -> bytes:
        part = self._content[self._position : self._position + size]
        self._position += len(part)
        return part
