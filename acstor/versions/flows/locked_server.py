"""A server that a task has locked: it is known as the task's by the reason of the lock."""

from acstor import exception
from acstor.versions import rebuilding
from acstor.versions.flows.patience import POLL_SECONDS, patiently
from acstor.versions.flows.work import CancelledError, Work
from acstor.versions.services.compute import Server

UNDO_SECONDS = 120.0
"""Seconds for which Nova is asked again by what must not fail."""
BUSY_SECONDS = 600.0
"""Seconds for which Nova may be at something else with the server."""
REBUILDING = "rebuild"
"""Beginning of the task states of a rebuild (nova/compute/task_states.py)."""


def find(work: Work) -> Server:
    """Return the server of the task.

    :raises NotFoundError: when the project has none with that id.
    """
    server_id = str(work.parameters["owner"])
    server = patiently(work, lambda: work.services.compute.find_server(server_id))
    if server is None or server.project != work.task.project:
        raise exception.NotFoundError(f"server {server_id} does not exist")
    return server


def idle(work: Work) -> Server:
    """Return the server when Nova is at nothing with it.

    :raises BusyServerError: when it does not come to an end.
    """
    end = work.clock() + BUSY_SECONDS
    while (server := find(work)).task_state is not None:
        if work.clock() >= end:
            raise busy(server)
        work.wait(POLL_SECONDS)
    return server


def busy(server: Server) -> rebuilding.BusyServerError:
    """Return the error of a server that Nova is at work with."""
    return rebuilding.BusyServerError(f"server {server.id} is busy: {server.task_state}")


def lock(work: Work) -> Server:
    """Lock the server, unless this task has done so before, and return it.

    :raises BusyServerError: when somebody else has locked it.
    """
    server = find(work)
    rebuilding.require_unlocked(server, work.task.id)
    if not server.is_locked:
        work.fence()
        reason = rebuilding.lock_reason(work.task.id)
        patiently(work, lambda: work.services.compute.lock(server.id, reason))
    return find(work)


def unlock(work: Work) -> None:
    """Take the lock of this task off; what fails is told, and left to the sweep of leftovers.

    :raises CancelledError: when somebody has cancelled the task.
    """
    compute, server_id = work.services.compute, str(work.parameters["owner"])

    def unlock_own() -> None:
        server = compute.find_server(server_id)
        if server is not None and server.lock_reason == rebuilding.lock_reason(work.task.id):
            work.fence()
            compute.unlock(server_id)

    try:
        patiently(work, unlock_own, UNDO_SECONDS)
    except CancelledError:
        raise
    except exception.NotFoundError:
        return  # deleted meanwhile
    except exception.AcstorError as error:
        work.note(f"server {server_id} stays locked: {exception.one_line(error)}")


def has_rebuild_begun(work: Work, before: str | None) -> bool:
    """Return whether the server has been rebuilt since, or is; True where nobody can tell.

    :param before: name of the latest rebuild before.
    :raises UnavailableError: when Nova cannot be asked, unless the task is being undone.
    """
    compute, server_id = work.services.compute, str(work.parameters["owner"])
    try:
        server = patiently(work, lambda: compute.find_server(server_id), UNDO_SECONDS)
        if server is not None and (server.task_state or "").startswith(REBUILDING):
            return True
        return patiently(work, lambda: compute.last_rebuild(server_id), UNDO_SECONDS) != before
    except exception.AcstorError:
        if not work.is_reverting:
            raise
        return True


def is_of_image(work: Work, image_id: str) -> bool:
    """Return whether a server is of an image; True where nobody can tell."""
    compute = work.services.compute
    try:
        return patiently(work, lambda: compute.is_image_used(image_id), UNDO_SECONDS)
    except exception.AcstorError as error:
        work.note(f"image {image_id} may be a server's, and stays: {exception.one_line(error)}")
        return True
