"""Opening an image that Glance has in RBD."""

from acstor import exception
from acstor.origin.rados.connection import Connection
from acstor.repository.source.rbd.base import BlockSnapshot
from acstor.repository.source.rbd.librbd import LibrbdSnapshot
from acstor.repository.source.rbd.location import RbdLocation
from acstor.repository.source.rbd.retrying import RetryingSnapshot


def open_snapshot(connection: Connection, location: RbdLocation) -> BlockSnapshot:
    """Return an open snapshot; the caller closes it.

    :raises NotFoundError: when there is none.
    :raises InvalidError: when it is in another cluster, or this client may not read it.
    :raises UnavailableError: when the cluster does not answer in time.
    :raises UnsupportedError: when there is no binding of librbd.
    """
    return RetryingSnapshot(LibrbdSnapshot(connection, location))


def check_size(snapshot: BlockSnapshot, size_bytes: int | None) -> None:
    """Refuse a snapshot of another size than Glance declares.

    :param size_bytes: of the image's file; None: it is not known.
    :raises InvalidError: when it has another one.
    """
    if size_bytes is not None and snapshot.size_bytes != size_bytes:
        raise exception.InvalidError(
            f"{snapshot.name} has {snapshot.size_bytes} bytes, and Glance declares {size_bytes}",
            hint="look at the image in Glance; upload it again",
        )
