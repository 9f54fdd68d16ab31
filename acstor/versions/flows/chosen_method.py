"""The method of a restore of a server that leaves it to the worker.

It is chosen before the flow begins, and noted in the task: whoever goes on with the task goes on by
the same method, and the API tells it. Nothing that fails here fails the task: the method is then
what it was before there were two, and the flow's own look says what is in the way.
"""

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception
from acstor.repository.versions.version_refs import Version
from acstor.versions import moved_bytes, rebuilding, restore_choice, writing_in_place
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.tasks import CHOSEN, TaskKind
from acstor.versions.database.version_index import IndexedVersion
from acstor.versions.flows import restored_disks
from acstor.versions.flows.export_version import version_of
from acstor.versions.flows.patience import patiently
from acstor.versions.flows.used_version import find_record
from acstor.versions.flows.work import Work
from acstor.versions.moved_bytes import Estimate
from acstor.versions.restore_choice import Options, RestoreMethod
from acstor.versions.services.compute import Server

LOG = logging.getLogger(__name__)

AUTO = "auto"
"""Method that leaves the choice to the worker."""
OF_DISKS = "disks were named, and a rebuild makes the root disk alone"
"""Reason for which several disks are restored in place."""
HOST_SECONDS = 60.0
"""Seconds for which a host that does not answer is asked again: it may restart."""


def choose(work: Work) -> None:
    """Choose the method, and note it, where that is left to the worker and not done yet.

    :raises Interrupted: when the task is not this work's, or the database cannot say.
    """
    wanted = work.parameters
    is_of_server = work.task.kind is TaskKind.RESTORE and wanted.get("kind") == TargetKind.SERVER
    if not is_of_server or wanted.get("method") != AUTO or CHOSEN in wanted:
        return
    if restored_disks.is_named(work):
        work.decide({"method": RestoreMethod.IN_PLACE.value, "reason": OF_DISKS})
        return
    try:
        choice = restore_choice.choose(_options(work))
    except exception.AcstorError as error:
        choice = restore_choice.unknown(error)
    # Where neither is possible the flow's look refuses the server.
    method = choice.method or RestoreMethod.REBUILD
    LOG.info("task %s: server restored by %s: %s", work.task.id, method, choice.reason)
    work.decide({"method": method.value, "reason": choice.reason})


def method_of(parameters: Mapping[str, Any]) -> str:
    """Return the method of a task: that which was chosen, else that which was asked for."""
    return str(_chosen(parameters).get("method") or parameters.get("method"))


def reason_of(parameters: Mapping[str, Any]) -> str | None:
    """Return why it was chosen; None: it was asked for."""
    found = _chosen(parameters).get("reason")
    return None if found is None else str(found)


def _chosen(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    found = parameters.get(CHOSEN)
    return found if isinstance(found, Mapping) else {}


def _options(work: Work) -> Options:
    """Return the facts, each asked for once.

    :raises AcstorError: when they cannot be had.
    """
    version, server = version_of(work), _server(work)
    device = version.record.disk.device
    newest = moved_bytes.newest_version(work.stores.versions, work.task.project, server, device)
    rebuild = _refusal(lambda: _require_rebuildable(work, version, server))
    if rebuild is not None and rebuild.is_transient:
        raise rebuild  # nobody can say what it would destroy
    return Options(
        rebuild,
        _refusal(lambda: _require_writable(work, version, server, newest)),
        _estimate(work, version, server, newest),
    )


def _server(work: Work) -> Server:
    """Return the server.

    :raises NotFoundError: when the project has none with that id.
    """
    server_id = str(work.parameters["owner"])
    server = work.services.compute.find_server(server_id)
    if server is None or server.project != work.task.project:
        raise exception.NotFoundError(f"server {server_id} does not exist")
    return server


def _refusal(require: Callable[[], None]) -> exception.AcstorError | None:
    """Return why something is refused; None: it is not."""
    try:
        require()
    except exception.AcstorError as error:
        return error
    return None


def _require_rebuildable(work: Work, version: Version, server: Server) -> None:
    rebuilding.require_restorable(
        server,
        version.id,
        version.record,
        work.services.images.properties,
        functools.partial(find_record, work),
        work.task.id,
    )


def _require_writable(
    work: Work, version: Version, server: Server, newest: IndexedVersion | None
) -> None:
    """Refuse a server into whose disk its host cannot write; the host is asked last."""
    writing_in_place.require_kept(is_kept=bool(work.parameters.get("keep_current", True)))
    writing_in_place.require_restorable(
        server,
        version.id,
        version.record,
        work.services.images.properties,
        functools.partial(find_record, work),
        work.task.id,
    )
    size = None if newest is None else newest.size_bytes
    writing_in_place.require_same_size(server, version.record, size)
    _require_host(work, server)


def _require_host(work: Work, server: Server) -> None:
    """Refuse a host that is away, is of an older release, or has captures off.

    :raises ConflictError: when the server is on none.
    :raises UnsupportedError: when the host does not know restores in place.
    :raises UnavailableError: when it does not answer.
    """
    if server.host is None:
        raise exception.ConflictError(f"server {server.id} is on no host")
    restores, host, task = work.services.restores, server.host, work.task.id
    try:
        patiently(work, lambda: restores.progress(host, task, work.epoch), HOST_SECONDS)
    except exception.NotFoundError:
        return  # it knows the message, and nothing of this task yet


def _estimate(
    work: Work, version: Version, server: Server, newest: IndexedVersion | None
) -> Estimate | exception.AcstorError:
    try:
        found = None if newest is None else find_record(work, newest.id)
        named = None if newest is None or found is None else (newest.id, found)
        repository = work.versions.repository
        return moved_bytes.estimate(repository, version.record, server.image, named)
    except exception.AcstorError as error:
        return error
