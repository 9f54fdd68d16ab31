"""Versions of disks: the index answers lists, the record in the origin is what is changed."""

import datetime
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.api import paging, task_requests, times
from acstor.api.backends import Backends
from acstor.api.errors import ApiError, LockedError, not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.paging import Page
from acstor.api.quotas import VERSION_MIB, VERSIONS
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import parts, tasks
from acstor.api.schemas import versions as schemas
from acstor.repository.versions import locks
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.version_refs import Version
from acstor.versions.database import index_refresh
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.tasks import Position, TaskKind
from acstor.versions.database.version_index import (
    Filter,
    IndexedVersion,
    Operator,
    SortKey,
    VersionField,
    VersionQuery,
    position_of,
)

FILTERS = (
    VersionField.NAME,
    VersionField.SERVER,
    VersionField.VOLUME,
    VersionField.DISK,
    VersionField.GROUP,
    VersionField.STATE,
    VersionField.TRIGGER,
    VersionField.CONSISTENCY,
    VersionField.LOCKED,
    VersionField.CREATED_AT,
    VersionField.EXPIRES_AT,
)
"""Fields that a list may be filtered by."""
SNAPSHOTS_SINCE = (1, 1)
"""Microversion that shows snapshots of Cinder's among the versions of a volume."""
_HINT = "list what there is: openstack acstor version list"
_SNAPSHOT_HINT = (
    "it is Cinder's: see openstack volume snapshot, openstack volume revert, and "
    "openstack volume create --snapshot"
)


def fields_of(version: IndexedVersion, *, is_admin: bool, project: str = "") -> dict[str, Any]:
    """Return a version as the API shows it.

    :param is_admin: whether the host that holds a capture is shown.
    :param project: that of a snapshot: of who sees its volume.
    """
    lock = version.lock
    found: dict[str, Any] = {
        "id": version.id,
        "name": version.name,
        "group_id": version.group,
        "server_id": version.server,
        "volume_id": version.volume,
        "disk": version.disk.device,
        "state": version.state.value,
        # What a snapshot is restored by is Cinder's.
        "restorable": version.is_restorable and not version.is_snapshot,
        "consistency": version.consistency.value,
        "trigger": version.trigger.value,
        "parent_id": version.parent,
        "base_image_id": version.base_image,
        "size_bytes": version.size_bytes,
        "unique_bytes": version.unique_bytes,
        "shared_bytes": version.shared_bytes,
        "created_at": times.text(version.created_at),
        "expires_at": times.optional_text(version.expires_at),
        "lock": lock and {"reason": lock.reason, "until": times.optional_text(lock.until)},
        "has_nvram": version.has_nvram,
        "project_id": version.project or project,
        "metadata": dict(version.labels),
    }
    if is_admin:
        found["host"] = version.host
    return found


def find(backends: Backends, call: Call, version_id: str) -> IndexedVersion:
    """Return a version that the caller may see, and that is none of Cinder's snapshots.

    :raises NotFoundError: when there is none, or it is another project's.
    :raises ApiError: 409 when it is a snapshot.
    """
    found = find_shown(backends, call, version_id)
    if found.is_snapshot:
        raise _snapshot_error(found)
    return found


def refuse_snapshot(backends: Backends, call: Call, version_id: str) -> None:
    """Refuse what only Cinder does with its snapshots; of anything else nothing is said.

    :raises ApiError: 409 when the id is a snapshot's that the caller sees.
    """
    found = backends.stores.versions.find(version_id)
    is_snapshot = found is not None and found.is_snapshot
    if found is not None and is_snapshot and sees_snapshots(backends, call, str(found.volume)):
        raise _snapshot_error(found)


def _snapshot_error(found: IndexedVersion) -> ApiError:
    error = ApiError(
        f"version {found.id} is a snapshot of volume {found.volume}",
        hint=_SNAPSHOT_HINT,
        code="acstor.version.is_snapshot",
    )
    error.status = 409
    return error


def find_shown(backends: Backends, call: Call, version_id: str) -> IndexedVersion:
    """Return a version, or a snapshot of a volume, that the caller may see.

    :raises NotFoundError: when there is none.
    """
    found = backends.stores.versions.find(version_id)
    if found is None or found.state is VersionState.CONDEMNED:
        raise not_found("version", version_id, hint=_HINT)
    if found.is_snapshot:
        is_seen = sees_snapshots(backends, call, str(found.volume))
    else:
        is_seen = call.scope in (None, found.project)
    if not is_seen:
        raise not_found("version", version_id, hint=_HINT)
    return found


def sees_snapshots(backends: Backends, call: Call, volume: str) -> bool:
    """Return whether the caller sees the snapshots of a volume: whoever sees that in Cinder.

    While Cinder is away nobody can say: then they are not there.
    """
    if call.microversion < SNAPSHOTS_SINCE:
        return False
    if call.is_admin:
        return True
    try:
        backends.user_services.require_volume(call.caller, volume)
    except (ApiError, exception.UnavailableError):
        return False
    return True


def restorable(backends: Backends, call: Call, version_id: str) -> Version:
    """Return a restore point that the caller may see, as its record is.

    :raises NotFoundError: when there is none.
    :raises ApiError: 409 when it is on its host only.
    """
    shown = find(backends, call, version_id)
    found = backends.open_versions().find(shown.id)
    if found is None or found.record.state is VersionState.CONDEMNED:
        raise not_found("version", version_id, hint=_HINT)
    if not found.record.is_restorable:
        error = ApiError(
            f"version {version_id} is {found.record.state.value}: its content is not there yet",
            hint="wait until it is committed",
            code="acstor.version.not_committed",
        )
        error.status = 409
        raise error
    return found


def restorable_of_caller(backends: Backends, call: Call, version_id: str) -> Version:
    """Return a restore point of the caller's project: what is made of it is that project's, too.

    :raises NotFoundError: when there is none; an administrator may see it all the same.
    :raises ApiError: 409 when it is on its host only.
    """
    found = restorable(backends, call, version_id)
    if found.record.project != call.caller.project:
        raise not_found("version", version_id, hint=_HINT)
    return found


def change(
    backends: Backends, version: IndexedVersion, edit: Callable[[], object]
) -> IndexedVersion | None:
    """Change a record, and have lists show it.

    :returns: the version as it is then; None where it is gone.
    :raises NotFoundError: when it was deleted meanwhile.
    :raises LockedError: when a lock forbids it.
    """
    try:
        edit()
    except exception.NotFoundError as error:
        _refresh(backends, version)
        raise not_found("version", version.id, hint=_HINT) from error
    except exception.ConflictError as error:
        if locks.is_locked(version.lock, backends.now()):
            raise LockedError(error.message) from error
        raise
    return _refresh(backends, version)


def _refresh(backends: Backends, version: IndexedVersion) -> IndexedVersion | None:
    refs = backends.open_versions().repository.origin
    return index_refresh.refresh(backends.stores.versions, refs, version.id)


class Versions(BackedResource):
    """Versions: ``/v1/versions``."""

    @operation("versions:list", "List versions", {200: schemas.LISTED}, query=schemas.QUERY)
    def on_get(self, call: Call) -> Answer:
        """Answer a page."""
        page = Page.of(call, self._backends.limit_max, "created_at", is_descending=True)
        key = SortKey(page.sort_key)

        filters = paging.filters(call.query, FILTERS)
        snapshots_of = self._snapshots_of(call, filters)

        def place(version_id: str) -> Position | None:
            found = self._backends.stores.versions.find(version_id)
            if found is None or (found.is_snapshot and found.volume != snapshots_of):
                return None
            is_own = found.is_snapshot or call.scope in (None, found.project)
            return position_of(found, key) if is_own else None

        found = self._backends.stores.versions.page(
            VersionQuery(
                project=paging.project_of(call),
                filters=filters,
                sort_key=key,
                is_descending=page.is_descending,
                limit=page.limit,
                after=page.position(place),
                snapshots_of=snapshots_of,
            )
        )
        project = call.caller.project
        items = [fields_of(each, is_admin=call.is_admin, project=project) for each in found]
        last = position_of(found[-1], key) if found else None
        return Answer(paging.body(call, "versions", items, page, last))

    def _snapshots_of(self, call: Call, filters: tuple[Filter, ...]) -> str | None:
        """Return the volume that the list is of, where the caller sees its snapshots."""
        for one in filters:
            if one.field is VersionField.VOLUME and one.operator is Operator.EQ:
                volume = str(one.values[0])
                return volume if sees_snapshots(self._backends, call, volume) else None
        return None

    @operation(
        "versions:create",
        "Take a version of each disk of a server, or of a volume",
        {202: tasks.SHOWN},
        body=schemas.CREATE,
        headers=parts.IDEMPOTENCY,
    )
    def on_post(self, call: Call) -> Answer:
        """Queue a task."""
        wanted, backends = call.body["version"], self._backends
        kind, owner = require_target(backends, call, wanted)
        expires_at = wanted.get("expires_at")
        if expires_at is not None:
            _require_later(backends, times.parse(expires_at, "expires_at"))
        parameters = {
            "kind": kind.value,
            "owner": owner,
            "name": wanted.get("name", ""),
            "consistency": wanted.get("consistency", "best"),
            "expires_at": expires_at,
            "trigger": Trigger.MANUAL.value,
            "labels": wanted.get("metadata", {}),
        }
        task = task_requests.queue(
            backends,
            call,
            TaskKind.CREATE,
            f"{kind.value}/{owner}",
            parameters,
            lambda: backends.quotas.require(call.caller.project, [VERSIONS, VERSION_MIB]),
        )
        return task_requests.accepted(task)


class OneVersion(BackedResource):
    """One version: ``/v1/versions/<id>``."""

    @operation("versions:show", "Show a version", {200: schemas.SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the version."""
        return _shown(call, find_shown(self._backends, call, call.path["version_id"]))

    @operation(
        "versions:update",
        "Change name, expiry or metadata of a version",
        {200: schemas.SHOWN},
        body=schemas.CHANGE,
    )
    def on_patch(self, call: Call) -> Answer:
        """Change what is named. The metadata that is sent takes the place of all there was."""
        backends, wanted = self._backends, call.body["version"]
        version = find(backends, call, call.path["version_id"])
        store = backends.open_versions()
        if "expires_at" in wanted:
            text = wanted["expires_at"]
            moment = None if text is None else times.parse(text, "expires_at")
            change(backends, version, lambda: store.set_expiry(version.id, moment))
        labels = None
        if "metadata" in wanted:
            labels = {**dict.fromkeys(version.labels), **wanted["metadata"]}
        if labels is not None or "name" in wanted:
            change(
                backends,
                version,
                lambda: store.describe(version.id, name=wanted.get("name"), labels=labels),
            )
        return _shown(call, find(backends, call, version.id))

    @operation("versions:delete", "Delete a version", {202: schemas.SHOWN, 204: None})
    def on_delete(self, call: Call) -> Answer:
        """Delete it; one that is in use is condemned, and goes with its last use."""
        backends = self._backends
        version = find(backends, call, call.path["version_id"])
        store = backends.open_versions()
        left = change(backends, version, lambda: store.delete(version.id))
        if left is None:
            return Answer(status=204)
        return Answer({"version": fields_of(left, is_admin=call.is_admin)}, 202)


class VersionLock(BackedResource):
    """Lock of a version: ``/v1/versions/<id>/lock``."""

    @operation(
        "versions:lock",
        "Lock a version: it is neither deleted nor does it expire",
        {200: schemas.SHOWN},
        body=schemas.SET_LOCK,
    )
    def on_put(self, call: Call) -> Answer:
        """Lock it, or make its lock last longer."""
        wanted, backends = call.body["lock"], self._backends
        version = find(backends, call, call.path["version_id"])
        until = wanted.get("until")
        moment = None if until is None else times.parse(until, "until")
        if moment is not None:
            _require_later(backends, moment)
        lock = Lock(wanted.get("reason", ""), moment)
        store = backends.open_versions()
        change(backends, version, lambda: store.lock(version.id, lock))
        return _shown(call, find(backends, call, version.id))

    @operation("versions:unlock", "Take the lock off a version", {204: None})
    def on_delete(self, call: Call) -> Answer:
        """Unlock it; without effect where it is not locked."""
        backends = self._backends
        version = find(backends, call, call.path["version_id"])
        store = backends.open_versions()
        change(backends, version, lambda: store.unlock(version.id))
        return Answer(status=204)


def require_target(backends: Backends, call: Call, wanted: Any) -> tuple[TargetKind, str]:
    """Return the server or volume that a body names, which the caller can see.

    :raises ApiError: 400 when the caller cannot.
    """
    if "server_id" in wanted:
        backends.user_services.require_server(call.caller, wanted["server_id"])
        return TargetKind.SERVER, str(wanted["server_id"])
    backends.user_services.require_volume(call.caller, wanted["volume_id"])
    return TargetKind.VOLUME, str(wanted["volume_id"])


def _require_later(backends: Backends, moment: datetime.datetime) -> None:
    if moment <= backends.now():
        raise ApiError(
            f"{times.text(moment)} is over", hint="name a time to come", code="acstor.time.over"
        )


def _shown(call: Call, version: IndexedVersion) -> Answer:
    shown = fields_of(version, is_admin=call.is_admin, project=call.caller.project)
    return Answer({"version": shown})
