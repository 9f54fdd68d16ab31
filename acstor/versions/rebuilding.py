"""Rules of a rebuild: when Nova may make a server's root disk anew of a version, and the losses.

Nova keeps id, name, addresses and volumes of the server. It refuses those with a virtual TPM, and
destroys what lies beside the root disk: UEFI variables, ephemeral disks and swap
(nova/compute/api.py, ``rebuild``; nova/virt/libvirt/driver.py, ``destroy``). A restore that loses
something is none, so such servers are refused. Differs from CloudVS, whose restores write into the
disk and lose nothing beside it.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence

from acstor import exception
from acstor.repository.versions.record import DiskKind, VersionRecord
from acstor.versions.services.compute import Server
from acstor.versions.services.image_store import VERSION_PROPERTY

REBUILDABLE = frozenset({"ACTIVE", "SHUTOFF", "ERROR"})
"""Statuses of servers that Nova rebuilds."""
LINEAGE_MAX = 16
"""Most servers, each made of a version of the one before, through which an owner is looked for."""
LOCK_PREFIX = "acstor restore "
"""Beginning of the reason of a lock, which the id of the task ends."""
TORN_PREFIX = "acstor: the disk is half written by restore "
"""Beginning of the reason of a lock that nobody sweeps; the id of the task follows."""
TORN_DISKS = ", disks "
"""Words in it before the names of the disks, where it is not the root disk alone."""
REASON = "nothing is beside the root disk that a rebuild would destroy"
"""Reason for which a rebuild is the method."""
MEND_HINT = "restore a version into it by the method in_place"
METHOD_HINT = "boot another server of the version: openstack acstor version boot"
_GIB = 1 << 30

PropertiesOf = Callable[[str], Mapping[str, str]]
"""Returns the properties of an image; none where there is no such image."""
FindRecord = Callable[[str], VersionRecord | None]
"""Returns the record of a version of the project; None: it has none of that id."""


class Loss(enum.StrEnum):
    """Part of a server that a rebuild destroys."""

    UEFI_VARIABLES = "uefi_variables"
    VTPM = "vtpm"
    EPHEMERAL_DISK = "ephemeral_disk"
    SWAP_DISK = "swap_disk"


class NotRebuildableError(exception.UnsupportedError):
    """A server that cannot be rebuilt of a version, or not without a loss."""

    default_hint = METHOD_HINT


class BusyServerError(exception.ConflictError):
    """A server that somebody else has locked, or is working at."""

    code = "acstor.server.busy"
    default_hint = "wait until it is unlocked and idle, then ask again"


def losses(
    server: Server, properties: Mapping[str, str], *records: VersionRecord
) -> tuple[Loss, ...]:
    """Return what a rebuild of a server would destroy.

    :param properties: of the image that it is of; none where that is gone: then the records tell.
    :param records: versions of its root disk.
    """
    has_nvram = any(record.nvram is not None for record in records)
    has_vtpm = any(record.vtpm is not None for record in records)
    flavor = server.flavor_specs
    found = {
        Loss.UEFI_VARIABLES: has_nvram or properties.get("hw_firmware_type") == "uefi",
        Loss.VTPM: has_vtpm or "hw_tpm_version" in properties or "hw:tpm_version" in flavor,
        Loss.EPHEMERAL_DISK: server.ephemeral_gib > 0,
        Loss.SWAP_DISK: server.swap_mib > 0,
    }
    return tuple(loss for loss, is_there in found.items() if is_there)


def require_restorable(
    server: Server,
    version_id: str,
    record: VersionRecord,
    properties_of: PropertiesOf,
    find_record: FindRecord,
    task_id: str | None = None,
) -> None:
    """Refuse a server into which a version cannot be put by a rebuild, or not without a loss.

    :param task_id: of the task whose own lock it may have.
    :raises NotRebuildableError: when it never can.
    :raises InvalidError: when the flavor has no room for it.
    :raises ConflictError: when it cannot in the server's present state.
    :raises UnavailableError: when Glance cannot be asked.
    """
    require_unlocked(server, task_id)
    require_rebuildable(server, record, version_id)
    if not is_version_of(record, server, properties_of, find_record):
        raise NotRebuildableError(
            f"version {version_id} is of another server than {server.id}, and of none in whose "
            "place that was made"
        )
    require_no_loss(server, losses(server, properties_of(str(server.image)), record))


def require_no_loss(server: Server, found: tuple[Loss, ...]) -> None:
    """Refuse a rebuild that would destroy something.

    :raises NotRebuildableError: naming all of it.
    """
    if found:
        parts = ", ".join(loss.value.replace("_", " ") for loss in found)
        raise NotRebuildableError(
            f"a rebuild of server {server.id} would destroy its {parts}",
            hint=f"ask for the method in_place, which leaves them alone; or {METHOD_HINT}",
        )


def require_rebuildable(server: Server, record: VersionRecord, version_id: str) -> None:
    """Refuse a server that cannot be rebuilt of a version, whatever it would lose.

    :raises NotRebuildableError: when it never can.
    :raises ConflictError: when it cannot in its present state.
    """
    require_server_disk(server, record, version_id)
    if server.root_device not in (None, record.disk.device):
        raise NotRebuildableError(
            f"version {version_id} is of disk {record.disk.device} of server {server.id}, whose "
            f"root disk is {server.root_device}"
        )
    if server.disk_gib and record.size_bytes > server.disk_gib * _GIB:
        raise exception.InvalidError(
            f"version {version_id} needs {-(-record.size_bytes // _GIB)} GiB, the flavor of server "
            f"{server.id} has {server.disk_gib} GiB for its root disk",
            hint="resize the server first",
        )
    require_state(server)


def require_server_disk(server: Server, record: VersionRecord, version_id: str) -> None:
    """Refuse versions of volumes, and servers whose root disk is one.

    :raises NotRebuildableError: then.
    """
    if record.disk.kind is not DiskKind.INSTANCE:
        raise NotRebuildableError(
            f"version {version_id} is of a volume", hint="restore the volume, while it is detached"
        )
    if server.image is None:
        raise NotRebuildableError(
            f"server {server.id} boots from a volume",
            hint="stop the server, detach the volume, and restore a version of the volume",
        )


def require_state(server: Server) -> None:
    """Refuse a server whose status does not allow a rebuild.

    :raises ConflictError: when it does not.
    """
    if server.status not in REBUILDABLE:
        raise exception.ConflictError(
            f"server {server.id} is {server.status}",
            hint=f"a server is rebuilt that is {', '.join(sorted(REBUILDABLE))}",
        )


def require_unlocked(server: Server, task_id: str | None = None) -> None:
    """Refuse a server that somebody has locked.

    :param task_id: of the task whose own lock it may be.
    :raises BusyServerError: when it is locked.
    """
    if is_torn(server):
        raise BusyServerError(
            f"the disk of server {server.id} is half written, so it is locked",
            hint=MEND_HINT,
        )
    if server.is_locked and (task_id is None or server.lock_reason != lock_reason(task_id)):
        raise BusyServerError(
            f"server {server.id} is locked",
            hint=f"unlock it, then ask again: openstack server unlock {server.id}",
        )


def is_version_of(
    record: VersionRecord, server: Server, properties_of: PropertiesOf, find_record: FindRecord
) -> bool:
    """Return whether a version is of a server, or of one in whose place it was made.

    :raises UnavailableError: when Glance cannot be asked.
    """
    owner = record.disk.owner
    return owner == server.id or owner in _owners(server.image, properties_of, find_record)


def _owners(
    image: str | None, properties_of: PropertiesOf, find_record: FindRecord
) -> Iterator[str]:
    """Yield the servers whose versions an image goes back to, the latest first."""
    for _ in range(LINEAGE_MAX):
        version_id = None if image is None else properties_of(image).get(VERSION_PROPERTY)
        record = None if version_id is None else _found(version_id, find_record)
        if record is None:
            return
        yield record.disk.owner
        image = record.base_image


def _found(version_id: str, find_record: FindRecord) -> VersionRecord | None:
    """Return a record, None where a property says nonsense: users may write it."""
    try:
        return find_record(version_id)
    except exception.InvalidError:
        return None


def torn_lock_reason(task_id: str, devices: Sequence[str] = ()) -> str:
    """Return the reason of a lock that stays after its task: disks may be half written.

    :param devices: names of the disks; none: the root disk alone.
    """
    named = f"{TORN_DISKS}{' '.join(devices)}" if devices else ""
    return f"{TORN_PREFIX}{task_id}{named}"


def torn_devices(server: Server) -> frozenset[str]:
    """Return the disks that the lock of a server says are half written.

    One that names none is of the root disk; of none, where nobody knows what that is called.
    """
    if not is_torn(server):
        return frozenset()
    named = (server.lock_reason or "").partition(TORN_DISKS)[2].split()
    return frozenset(named or filter(None, [server.root_device]))


def torn_task(server: Server) -> str | None:
    """Return the task whose lock says that disks of a server are half written; None: no lock."""
    if not is_torn(server):
        return None
    named = (server.lock_reason or "").removeprefix(TORN_PREFIX)
    return named.partition(TORN_DISKS)[0]


def is_torn(server: Server) -> bool:
    """Return whether a server is locked because its disk may be half written."""
    return server.is_locked and (server.lock_reason or "").startswith(TORN_PREFIX)


def lock_reason(task_id: str) -> str:
    """Return the reason of a lock, by which its task is known."""
    return f"{LOCK_PREFIX}{task_id}"


def task_of_lock(reason: str | None) -> str | None:
    """Return the task that has locked a server; None: none has."""
    if reason is None or not reason.startswith(LOCK_PREFIX):
        return None
    return reason.removeprefix(LOCK_PREFIX)
