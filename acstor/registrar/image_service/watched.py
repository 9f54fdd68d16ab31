"""An image service that remembers how it fared, so that its user can tell who failed."""

from collections.abc import Callable
from typing import TypeVar

from acstor import exception
from acstor.registrar.image_service import base

Answer = TypeVar("Answer")


class WatchedImageService(base.ImageService):
    """Passes every call on.

    :param inner: the service that does the work.
    """

    def __init__(self, inner: base.ImageService) -> None:
        """Wrap ``inner``."""
        self.inner = inner
        self.last_error: exception.AcstorError | None = None
        """Error that the last call raised; None: it succeeded."""

    def list_images(self) -> list[base.ServiceImage]:
        """Return all images."""
        return self._watch(self.inner.list_images)

    def find_image(self, image_id: str) -> base.ServiceImage | None:
        """Return an image."""
        return self._watch(lambda: self.inner.find_image(image_id))

    def open_data(self, image_id: str, offset: int = 0) -> base.ImageData:
        """Begin to read."""
        return self._watch(lambda: self.inner.open_data(image_id, offset))

    def close(self) -> None:
        """Close the service that does the work."""
        self.inner.close()

    def _watch(self, call: Callable[[], Answer]) -> Answer:
        try:
            answer = call()
        except exception.AcstorError as error:
            self.last_error = error
            raise
        self.last_error = None
        return answer
