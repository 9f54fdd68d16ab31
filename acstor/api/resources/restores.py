"""Restores: a disk, or all disks of a server, as they were. Each is the task that does it."""

from typing import Any

from acstor import exception
from acstor.api import paging, task_requests, times
from acstor.api.backends import Backends
from acstor.api.errors import ApiError, not_found
from acstor.api.microversions import Microversion
from acstor.api.operations import Answer, Call, operation
from acstor.api.paging import Page
from acstor.api.resources import tasks
from acstor.api.resources.base import BackedResource
from acstor.api.resources.versions import refuse_snapshot, require_target
from acstor.api.schemas import parts
from acstor.api.schemas import restores as schemas
from acstor.api.schemas import tasks as task_schemas
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import CHOSEN, Task, TaskKind, TaskQuery
from acstor.versions.database.version_index import (
    Filter,
    IndexedVersion,
    Operator,
    VersionField,
    VersionQuery,
)


def fields_of(task: Task, microversion: Microversion) -> dict[str, Any]:
    """Return a restore as the API shows it: the method chosen, once it is, why, bytes moved."""
    found = _first_fields(task)
    if microversion >= schemas.DISKS_SINCE:
        found["version_ids"] = list(task.parameters.get("versions", ()))
        found["restore_nvram"] = bool(task.parameters.get("restore_nvram"))
    return found


def _first_fields(task: Task) -> dict[str, Any]:
    wanted, result = task.parameters, task.result or {}
    chosen = wanted.get(CHOSEN) or {}
    is_server = wanted.get("kind") == TargetKind.SERVER
    return {
        "id": task.id,
        "version_id": wanted.get("version_id"),
        "group_id": wanted.get("group_id"),
        "server_id": wanted.get("owner") if is_server else None,
        "volume_id": None if is_server else wanted.get("owner"),
        "method": result.get("method") or chosen.get("method") or wanted.get("method"),
        "reason": result.get("reason") or chosen.get("reason"),
        "keep_current": bool(wanted.get("keep_current", True)),
        "bytes_moved": result.get("bytes_moved"),
        "state": task.state.value,
        "task_id": task.id,
        "created_at": times.text(task.created_at),
    }


class Restores(BackedResource):
    """Restores: ``/v1/restores``."""

    @operation("restores:list", "List restores", {200: schemas.LISTED}, query=schemas.QUERY)
    def on_get(self, call: Call) -> Answer:
        """Answer a page."""
        backends = self._backends
        page = Page.of(call, backends.limit_max, "created_at", is_descending=True)
        found = backends.stores.tasks.page(
            TaskQuery(
                project=paging.project_of(call),
                states=task_requests.words_of(call.query.get("state"), TaskState, "state"),
                kinds=frozenset({TaskKind.RESTORE}),
                resource=tasks.resource_of(call),
                is_descending=page.is_descending,
                limit=page.limit,
                after=page.position(lambda one: tasks.position_of(tasks.find(backends, call, one))),
            )
        )
        last = tasks.position_of(found[-1]) if found else None
        return Answer(
            paging.body(
                call,
                "restores",
                [fields_of(each, call.microversion) for each in found],
                page,
                last,
            )
        )

    @operation(
        "restores:create",
        "Put a version, or all of a group, back in place",
        {202: task_schemas.SHOWN},
        body=schemas.CREATE,
        headers=parts.IDEMPOTENCY,
    )
    def on_post(self, call: Call) -> Answer:
        """Queue a task."""
        wanted, backends = call.body["restore"], self._backends
        versions = _versions(backends, call, wanted)
        kind, owner = require_target(backends, call, wanted)
        if kind not in backends.restorable:
            raise exception.UnsupportedError(
                f"this release does not put a {kind.value} back in place",
                hint="boot another server of the version, or restore the volumes one by one",
            )
        if kind is TargetKind.SERVER:
            _require_method(wanted, versions, call.microversion)
        elif "disks" in wanted:
            raise ApiError(
                "a volume is one disk, and disks were named",
                hint="leave disks out",
                code="acstor.body.invalid",
            )
        parameters = {
            "kind": kind.value,
            "owner": owner,
            "versions": sorted(version.id for version in versions),
            "version_id": versions[0].id if len(versions) == 1 else None,
            "group_id": wanted.get("group_id"),
            "method": wanted.get("method", "auto"),
            "keep_current": wanted.get("keep_current", True),
            # Without a word of them older clients have the variables stay, as they did.
            "restore_nvram": wanted.get("restore_nvram", call.microversion >= schemas.DISKS_SINCE),
            "disks": wanted.get("disks"),
        }
        task = task_requests.queue(
            backends, call, TaskKind.RESTORE, f"{kind.value}/{owner}", parameters
        )
        return task_requests.accepted(task)


class OneRestore(BackedResource):
    """One restore: ``/v1/restores/<id>``."""

    @operation("restores:show", "Show a restore", {200: schemas.SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the restore."""
        restore_id = call.path["restore_id"]
        task = tasks.find(self._backends, call, restore_id)
        if task.kind is not TaskKind.RESTORE:
            raise not_found("restore", restore_id, hint="see openstack acstor task show")
        return Answer({"restore": fields_of(task, call.microversion)})


def _require_method(
    wanted: Any, versions: list[IndexedVersion], microversion: Microversion
) -> None:
    """Refuse what no restore of a server does.

    :raises UnsupportedError: for several disks and another method than in place, for a group of
        which versions are missing, or for a disk that is exchanged and not kept.
    """
    if len(versions) != 1 and microversion < schemas.DISKS_SINCE:
        raise exception.UnsupportedError(
            f"these are {len(versions)} versions, and a server is restored from one",
            hint="restore the version of the root disk, and volumes one by one; or ask by "
            "microversion 1.1",
        )
    is_set = len(versions) != 1 or "disks" in wanted
    if is_set and wanted.get("method") == "rebuild":
        raise exception.UnsupportedError(
            f"a rebuild makes the root disk alone, and these are {len(versions)} disks",
            hint="ask for the method in_place",
        )
    if is_set and not wanted.get("keep_current", True):
        raise exception.UnsupportedError(
            "several disks are restored in place, which keeps the present ones as versions",
            hint="leave keep_current out",
        )
    size = versions[0].group_size
    # By older microversions the one that is left is restored, as it was: they name no disks.
    is_whole_group = "group_id" in wanted and "disks" not in wanted
    if is_whole_group and len(versions) < size and microversion >= schemas.DISKS_SINCE:
        raise exception.UnsupportedError(
            f"of {size} disks of that moment {len(versions)} have a version still",
            hint="name those that are to be restored",
        )
    if wanted.get("method") == "in_place" and not wanted.get("keep_current", True):
        raise exception.UnsupportedError(
            "a restore in place keeps the present disk as a version: it is the way back",
            hint="leave keep_current out, or ask for the method rebuild",
        )


def _versions(backends: Backends, call: Call, wanted: Any) -> list[IndexedVersion]:
    """Return the versions that a restore is of: restore points of the caller's project.

    Of a group, all, or those of the disks that are named; where a volume is to be restored, that
    volume's. Disks that are named with a version are of its group.

    :raises ApiError: 400 when there are none, 409 when one is on its host only.
    """
    project = call.caller.project
    if "version_id" in wanted:
        one = backends.stores.versions.find(wanted["version_id"], project)
        if one is None:
            refuse_snapshot(backends, call, wanted["version_id"])
        found = [] if one is None else [one]
        if one is not None and one.group is not None and "disks" in wanted:
            found = _group(backends, project, one.group)
    else:
        wanted_volume = wanted.get("volume_id")
        members = _group(backends, project, wanted["group_id"])
        found = [one for one in members if wanted_volume in (None, one.volume)]
    if found and "disks" in wanted:
        found = _of_disks(found, wanted["disks"])
    if not found:
        name = wanted.get("version_id") or wanted["group_id"]
        raise ApiError(
            f"there is no version or group {name} in your project",
            hint="list what there is: openstack acstor version list",
            code="acstor.version.unknown",
        )
    for version in found:
        if not version.is_restorable:
            error = ApiError(
                f"version {version.id} is {version.state.value}: it is no restore point",
                hint="wait until it is committed",
                code="acstor.version.not_committed",
            )
            error.status = 409
            raise error
    return found


def _group(backends: Backends, project: str, group: str) -> list[IndexedVersion]:
    condition = Filter(VersionField.GROUP, Operator.EQ, (group,))
    return backends.stores.versions.page(VersionQuery(project=project, filters=(condition,)))


def _of_disks(members: list[IndexedVersion], disks: list[str]) -> list[IndexedVersion]:
    """Return the versions of disks.

    :raises ApiError: 400 when a disk has none.
    """
    by_disk = {member.disk.device: member for member in members}
    for disk in disks:
        if disk not in by_disk:
            raise ApiError(
                f"there is no version of disk {disk} of that moment",
                hint=f"there are versions of {', '.join(sorted(by_disk))}",
                code="acstor.version.unknown",
            )
    return [by_disk[disk] for disk in disks]
