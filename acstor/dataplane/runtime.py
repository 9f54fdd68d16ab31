"""Making of a runtime, which is a :class:`acstor.native.DataPlane`."""

from collections.abc import Callable
from typing import Protocol

from acstor.dataplane.settings import DataPlaneSettings
from acstor.native import DataPlane


class OriginReader(Protocol):
    """Reads that the runtime needs of an origin that it cannot read natively."""

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """See :meth:`acstor.origin.base.Origin.readinto`."""


class MemberReader(Protocol):
    """Member of an origin of several stores, see :class:`.member_readers.MemberReader`."""

    @property
    def name(self) -> str:
        """Name of the member."""

    @property
    def generation(self) -> int:
        """Generation that it has to have."""

    @property
    def is_assigned(self) -> bool:
        """True if it is asked before those that are not."""

    @property
    def posix_root(self) -> str | None:
        """Directory that it is, read without Python."""

    @property
    def reader(self) -> OriginReader | None:
        """Reader of it where it is no directory."""

    def read_generation(self) -> int:
        """Return the generation that it carries.

        :raises AcstorError: when it cannot be read, or belongs to another origin.
        """


RuntimeFactory = Callable[[DataPlaneSettings, OriginReader | list[MemberReader] | None], DataPlane]
"""Makes a runtime that is not started; a second one after the first could not start."""
