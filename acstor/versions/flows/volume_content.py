"""Versions of volumes that no host has open: their content is in the origin already."""

from acstor import exception
from acstor.repository.versions.locks import parse_time
from acstor.repository.versions.record import (
    Consistency,
    DiskKind,
    DiskName,
    Trigger,
    VersionRecord,
)
from acstor.repository.versions.states import VersionState
from acstor.repository.volumes.record_refs import Volume
from acstor.versions.flows.work import Work


def publish(
    work: Work, volume: Volume, *, name: str, trigger: Trigger, parent: str | None = None
) -> str:
    """Make a version of a volume's present content, and return its id; repeating it is safe.

    It gets the id that the task gives the volume's only disk.

    :raises ConflictError: when a host has the volume open, or its content was collected meanwhile.
    """
    version_id = work.name_of("disk ")
    found = work.versions.find(version_id)
    if found is not None:
        return version_id
    if volume.record.owner is not None:
        raise exception.ConflictError(
            f"volume {volume.id} is open on host {volume.record.owner}", hint="ask again"
        )
    wanted, now = work.parameters, work.now()
    expires_at = wanted.get("expires_at")
    record = VersionRecord(
        state=VersionState.COMMITTED,
        disk=DiskName(DiskKind.VOLUME, volume.id),
        size_bytes=volume.record.size_bytes,
        project=work.task.project,
        created_at=now,
        committed_at=now,
        name=name,
        trigger=trigger,
        consistency=Consistency.CRASH,
        parent=parent,
        manifest=volume.record.manifest,
        logs=volume.record.logs,
        group=work.task.id,
        schedule=wanted.get("schedule"),
        slot=wanted.get("slot"),
        expires_at=expires_at and parse_time(expires_at, "expires_at"),
        labels=dict(wanted.get("labels") or {}),
        dedup_scope=volume.record.dedup_scope,
    )
    work.fence()
    work.versions.publish(version_id, record)
    return version_id
