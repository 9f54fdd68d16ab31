"""Interface of a snapshot of an RBD image that is open to be read."""

import abc

from acstor.repository.source.rbd.data_ranges import DataRanges


class BlockSnapshot(abc.ABC):
    """A snapshot that does not change.

    Every method that reads may raise

    * :class:`~acstor.exception.NotFoundError`: the snapshot is not there (any more);
    * :class:`~acstor.exception.UnavailableError`: the cluster does not answer in time;
    * :class:`~acstor.exception.InvalidError`: it refuses this client.

    Methods may be called from several threads at once.
    """

    name: str
    """Pool, image and snapshot, for messages."""
    size_bytes: int
    """Any number of bytes."""

    @abc.abstractmethod
    def list_data(self) -> DataRanges:
        """Return the ranges that may hold data; what lies between them is zero."""

    @abc.abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return exactly ``size`` bytes from ``offset`` on, all of which lie in the snapshot."""

    @abc.abstractmethod
    def is_there(self) -> bool:
        """Return whether the pool still has this snapshot, and no other of its name.

        Objects of a snapshot that was removed read as zeros, not as an error.
        """

    def close(self) -> None:  # noqa: B027 - memory holds nothing
        """Release what is held; closing again does nothing."""
