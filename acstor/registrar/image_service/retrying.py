"""An image service whose questions are repeated, within a deadline, while it is away."""

import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

from acstor import exception
from acstor.registrar.image_service import base

WAIT_SECONDS_INITIAL = 0.5
WAIT_SECONDS_MAX = 30.0

Answer = TypeVar("Answer")


class RetryingImageService(base.ImageService):
    """Repeats what failed with a transient error, with full jitter.

    Data that are being read are not repeated here: their reader knows how far it came.

    :param inner: the service that does the work.
    :param deadline_seconds: no attempt starts later than this after the call.
    :param attempts_max: most attempts of one call.
    :param sleep: how to wait; a test may put its own.
    """

    def __init__(
        self,
        inner: base.ImageService,
        deadline_seconds: float,
        attempts_max: int,
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Wrap ``inner``."""

        def wait(seconds: float) -> None:
            sleep(seconds)

        self.inner = inner
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_transient),
            stop=tenacity.stop_after_attempt(attempts_max)
            | tenacity.stop_before_delay(deadline_seconds),
            wait=tenacity.wait_random_exponential(WAIT_SECONDS_INITIAL, WAIT_SECONDS_MAX),
            sleep=wait,
            reraise=True,
        )

    def list_images(self) -> list[base.ServiceImage]:
        """Return all images."""
        return self._repeat(self.inner.list_images)

    def find_image(self, image_id: str) -> base.ServiceImage | None:
        """Return an image."""
        return self._repeat(lambda: self.inner.find_image(image_id))

    def open_data(self, image_id: str, offset: int = 0) -> base.ImageData:
        """Begin to read, at the first attempt or not at all."""
        return self.inner.open_data(image_id, offset)

    def close(self) -> None:
        """Close the service that does the work."""
        self.inner.close()

    def _repeat(self, call: Callable[[], Answer]) -> Answer:
        return self._retrying.copy()(call)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, exception.AcstorError) and error.is_transient
