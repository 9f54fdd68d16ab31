"""Rules of restores in place: when versions may be written into the disks of their server.

What is beside the disk is left alone, so nothing is lost by it. What only the host knows of the
disk it refuses itself, before it writes: snapshots inside a qcow2, encryption, another storage than
files.
"""

from collections.abc import Sequence

from acstor import exception
from acstor.repository.versions.record import VersionRecord
from acstor.versions import rebuilding
from acstor.versions.services.compute import Server

ACTIVE = "ACTIVE"
SHUTOFF = "SHUTOFF"
RESTORABLE = frozenset({ACTIVE, SHUTOFF})
"""Statuses of servers whose disks are whole, and that can be stopped and started."""
KEEP_HINT = "ask for the method rebuild"
_GIB = 1 << 30


def require_restorable(
    server: Server,
    version_id: str,
    record: VersionRecord,
    properties_of: rebuilding.PropertiesOf,
    find_record: rebuilding.FindRecord,
    task_id: str | None = None,
    *,
    is_named: bool = False,
) -> None:
    """Refuse a server into whose disk a version cannot be written.

    :param is_named: whether the disk was asked for; else it must be the root disk.
    :raises NotRebuildableError: when it never can.
    :raises ConflictError: when it cannot in its present state.
    :raises UnavailableError: when Glance cannot be asked.
    """
    require_unlocked(server, task_id)
    if is_root(server, record):
        rebuilding.require_rebuildable(server, record, version_id)
    elif is_named:
        rebuilding.require_server_disk(server, record, version_id)
    else:
        device = record.disk.device
        raise rebuilding.NotRebuildableError(
            f"version {version_id} is of disk {device} of server {server.id}, whose root disk is "
            f"{server.root_device}",
            hint=f"name the disk, if it is that: openstack acstor version restore --disk {device}",
        )
    if server.status not in RESTORABLE:
        raise exception.ConflictError(
            f"server {server.id} is {server.status}",
            hint=f"it must be {' or '.join(sorted(RESTORABLE))}, or {KEEP_HINT}",
        )
    if not rebuilding.is_version_of(record, server, properties_of, find_record):
        raise rebuilding.NotRebuildableError(
            f"version {version_id} is of another server than {server.id}"
        )


def require_unlocked(server: Server, task_id: str | None) -> None:
    """Refuse a server that somebody has locked; a disk that is half written is mended.

    :raises BusyServerError: when it is locked.
    """
    if not rebuilding.is_torn(server):
        rebuilding.require_unlocked(server, task_id)


def is_root(server: Server, record: VersionRecord) -> bool:
    """Return whether a version is of the disk that the server boots from, as far as is known."""
    return server.root_device in (None, record.disk.device)


def require_covered(server: Server, devices: Sequence[str]) -> None:
    """Refuse to leave a disk half written: the server is started after a restore.

    :param devices: names of the disks that are restored.
    :raises BusyServerError: when the lock names one that is not among them.
    """
    if left := rebuilding.torn_devices(server) - set(devices):
        raise rebuilding.BusyServerError(
            f"of server {server.id} are half written, too: {', '.join(sorted(left))}",
            hint="restore all of its disks at once, of one group of versions",
        )


def require_same_size(server: Server, record: VersionRecord, newest_bytes: int | None) -> None:
    """Refuse a server whose disk has another size than a version, by what is recorded.

    :param newest_bytes: size of the disk in its newest version; None: that tells nothing.
    :raises NotRebuildableError: when it was resized since.
    """
    flavor_gib = server.disk_gib if is_root(server, record) else 0
    size_bytes = flavor_gib * _GIB or newest_bytes or record.size_bytes
    if size_bytes != record.size_bytes:
        raise rebuilding.NotRebuildableError(
            f"the version has {record.size_bytes} bytes and the disk {size_bytes}: it was resized",
            hint=KEEP_HINT,
        )


def require_kept(*, is_kept: bool) -> None:
    """Refuse to lose the present disk, which is the way back.

    :raises UnsupportedError: when it is not to become a version.
    """
    if not is_kept:
        raise exception.UnsupportedError(
            "a restore in place keeps the present disk as a version: it is the way back",
            hint=f"leave --discard-current out, or {KEEP_HINT}",
        )
