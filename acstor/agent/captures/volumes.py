"""Versions of volumes: nothing is scanned, for log and manifest of a volume say it all."""

from typing import Any, Protocol

from acstor import exception
from acstor.agent.captures.orders import HeldDisk, HeldMoment
from acstor.control.operations import BY_NAME
from acstor.repository.versions.record import Consistency, VersionRecord
from acstor.repository.versions.states import RESTORABLE, VersionState
from acstor.repository.versions.store import VersionStore
from acstor.repository.versions.version_refs import utc_now
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.store import PushedState
from acstor.versions.host_capture.request import CaptureRequest


class DataPlaneCalls(Protocol):
    """The admin socket's client."""

    def call(self, method: str, /, *, call_timeout: float | None = None, **params: object) -> Any:
        """Call a method of the data plane."""


def publish_volume(
    store: VersionStore, request: CaptureRequest, data_plane: DataPlaneCalls
) -> HeldMoment:
    """Push a volume that is open here, and publish what is then in the origin as a version.

    As Cinder's snapshots are made. Repeating it is safe: a version that is there stays.

    :raises NotFoundError: when there is no such volume, or it is not open on this host.
    :raises ConflictError: when the volume was folded since the push: repeat it.
    """
    version_id = request.version_id("")
    found = store.find(version_id)
    if found is None or found.record.state not in RESTORABLE:
        record = _pushed_record(store, request, data_plane)
        store.publish(version_id, record)
    else:
        record = found.record
    disk = HeldDisk("", version_id, record.size_bytes, 0, is_whole=False)
    return HeldMoment(record.created_at, record.consistency, "volumes have no agent", (disk,))


def _pushed_record(
    store: VersionStore, request: CaptureRequest, data_plane: DataPlaneCalls
) -> VersionRecord:
    volume = record_refs.find_volume(store.repository.origin, request.owner)
    if volume is None:
        raise exception.NotFoundError(f"volume {request.owner} does not exist")
    # Before the push: what is acknowledged until then is in it.
    moment = utc_now()
    answer = data_plane.call(
        "volume.push", call_timeout=BY_NAME["volume.push"].timeout, volume=request.owner
    )
    pushed = PushedState.from_answer(answer)
    fields = request.version
    return VersionRecord(
        state=VersionState.COMMITTED,
        disk=request.disk(""),
        size_bytes=pushed.size_bytes,
        project=fields.project,
        created_at=moment,
        committed_at=utc_now(),
        name=fields.name,
        trigger=fields.trigger,
        consistency=Consistency.CRASH,
        parent=request.parents.get(""),
        manifest=pushed.disk.manifest,
        logs=pushed.disk.logs,
        group=request.task,
        schedule=fields.schedule,
        slot=fields.slot,
        expires_at=fields.expires_at,
        labels=dict(fields.labels),
        dedup_scope=volume.record.dedup_scope,
    )
