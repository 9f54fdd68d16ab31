"""Reading a volume on the host of cinder-volume itself, through its data plane."""

import contextlib
import logging
import uuid
from collections.abc import Iterator
from typing import Any

from cinder.volume import volume_utils

from acstor import exception
from acstor.drivers.brick import connector as brick_connector
from acstor.drivers.cinder import connection_data
from acstor.drivers.cinder.back_end import BackEnd
from acstor.repository.volumes.store import NewVolume, PushedState

LOG = logging.getLogger(__name__)


def make_clone(back_end: BackEnd, source: str, pushed: PushedState | None) -> str:
    """Make a volume with the content of another one, to be read; return its name."""
    volumes, disk = back_end.volumes, str(uuid.uuid4())
    record = volumes.get(source).record
    size_bytes = pushed.size_bytes if pushed else record.size_bytes
    # What its log has may be folded while it is read.
    scope, name = record.dedup_scope, f"for reading {source}"
    volumes.clone(NewVolume(disk, size_bytes, name=name, dedup_scope=scope), source, pushed)
    return disk


@contextlib.contextmanager
def removed_afterwards(back_end: BackEnd, disk: str) -> Iterator[None]:
    """Delete a volume at the end."""
    try:
        yield
    finally:
        try:
            back_end.volumes.delete(disk, force=True)
        except exception.AcstorError as error:
            LOG.warning("volume %s, a clone for reading, stays behind: %s", disk, error)


@contextlib.contextmanager
def opened(back_end: BackEnd, disk: str) -> Iterator[Any]:
    """Open a volume here; yield what os-brick hands out: a file with the content.

    :raises UnavailableError: when there is no data plane on this host.
    """
    host = host_name()
    back_end.volumes.allow_host(disk, host)
    try:
        data = connection_data.of_disk(back_end.volumes.get(disk).record, disk)
        connector = volume_utils.brick_get_connector(connection_data.PROTOCOL)
        device = connector.connect_volume(data)
        try:
            yield device["path"]
        finally:
            connector.disconnect_volume(data, device, force=True)
    finally:
        back_end.volumes.disallow_host(disk, host)


def host_name() -> str:
    """Return the name of this host's data plane.

    :raises UnavailableError: when there is none.
    """
    try:
        return brick_connector.volume_calls().host()
    except exception.AcstorError as error:
        raise exception.UnavailableError(
            "the host of cinder-volume has no data plane to read volumes with: " + error.message,
            hint="run acstor-dataplane there and let Cinder's user use its volume socket "
            "([volumes] control_socket and control_group of acstor.conf)",
        ) from error
