"""Making of a runtime, which is a :class:`acstor.native.DataPlane`."""

from collections.abc import Callable
from typing import Protocol

from acstor.dataplane.settings import DataPlaneSettings
from acstor.native import DataPlane


class OriginReader(Protocol):
    """Reads that the runtime needs of an origin that it cannot read natively."""

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """See :meth:`acstor.origin.base.Origin.readinto`."""


RuntimeFactory = Callable[[DataPlaneSettings, OriginReader | None], DataPlane]
"""Makes a runtime that is not started; a second one after the first could not start."""
