"""The interface of the image service: what images there are, and their data.

Implementations are read-only. Every method may block, within the deadlines that the
implementation was given, and may be called from several threads at once. Every method may raise

* :class:`~acstor.exception.UnavailableError`: the service, or Keystone before it, is away, slow or
  fails; :class:`~acstor.exception.OverloadedError`: it refuses because of load; later may help;
* :class:`~acstor.exception.InvalidError`: it refuses these credentials, or this request.
"""

import abc
import contextlib
import dataclasses
from collections.abc import Mapping
from types import TracebackType

from acstor import exception
from acstor.repository.checksum import ALGORITHMS, Checksum

STATUS_ACTIVE = "active"
STATUS_DEACTIVATED = "deactivated"
STATUSES_GONE = frozenset({"deleted", "pending_delete", "killed"})
"""Statuses of images that nobody can use any more."""

VISIBILITY_PUBLIC = "public"
"""Visibility that only an administrator may give an image, by Glance's default policy."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceImage:
    """An image as the image service describes it."""

    id: str
    name: str = ""
    status: str = STATUS_ACTIVE
    """``queued``, ``saving``, ``importing``, ``active``, ``deactivated`` ..."""
    disk_format: str | None = None
    container_format: str | None = None
    size_bytes: int | None = None
    """Of the file; None before there are data."""
    md5: str | None = None
    """Glance's ``checksum``, hexadecimal."""
    hash_algorithm: str | None = None
    """Glance's ``os_hash_algo``."""
    hash_value: str | None = None
    """Glance's ``os_hash_value``, hexadecimal."""
    owner: str = ""
    """Id of the project that owns it; empty: none does."""
    visibility: str = "private"
    is_hidden: bool = False
    updated_at: str = ""
    """ISO 8601, as the service writes it."""
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Whatever else it says, as text."""
    locations: tuple[str, ...] = ()
    """URLs in RBD, where the service tells them; users may have written them."""

    @property
    def checksum(self) -> Checksum | None:
        """The strongest declared checksum that can be verified; None: there is none."""
        declared = [f"md5:{self.md5}"]
        if self.hash_algorithm in ALGORITHMS:
            declared.insert(0, f"{self.hash_algorithm}:{self.hash_value}")
        for text in declared:
            with contextlib.suppress(exception.InvalidError):  # there is none, or it is malformed
                return Checksum.parse(text)
        return None

    def declares(self, checksum: str | None) -> bool:
        """Return whether the service declares this checksum, whichever it declares beside it.

        :param checksum: ``algorithm:hexadecimal``.
        """
        declared = (("md5", self.md5), (self.hash_algorithm, self.hash_value))
        return checksum in {f"{name}:{value}" for name, value in declared if value}


class ImageData(abc.ABC):
    """Data of an image that are being read; a context manager that ends the reading."""

    offset: int
    """Offset at which the data begin, bytes from the start of the file: what was asked for, or 0
    where the service cannot begin elsewhere."""

    @abc.abstractmethod
    def read(self, size: int) -> bytes:
        """Return the next bytes, at most ``size`` and at least one; none at the end.

        The end says nothing about whether all of the file came.
        """

    def close(self) -> None:  # noqa: B027 - memory holds nothing
        """End the reading."""

    def __enter__(self) -> "ImageData":
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End, also after an error."""
        self.close()


class ImageService(abc.ABC):
    """The image service, seen with the rights of a service user."""

    @abc.abstractmethod
    def list_images(self) -> list[ServiceImage]:
        """Return all images, of every project, visibility and status, hidden ones too.

        An image that exists from the start of the call to its end is in the result.
        """

    @abc.abstractmethod
    def find_image(self, image_id: str) -> ServiceImage | None:
        """Return an image, None when there is none."""

    @abc.abstractmethod
    def open_data(self, image_id: str, offset: int = 0) -> ImageData:
        """Begin to read an image's data at ``offset``, bytes, below the size of the file.

        :raises NotFoundError: when there is no such image.
        :raises UnavailableError: also when the image has no data.
        """

    def close(self) -> None:  # noqa: B027 - memory holds nothing
        """Release what is held."""
