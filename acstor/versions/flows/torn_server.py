"""A server whose disk may be half written: its lock says so, and its host knows.

The lock is what keeps its owner from starting it, and stays when the task has ended. An
administrator may take it off all the same, so the host is asked as well before anything is done
that a half written disk must not see.
"""

from collections.abc import Sequence

from acstor import exception
from acstor.versions import rebuilding
from acstor.versions.flows.locked_server import UNDO_SECONDS, find
from acstor.versions.flows.patience import patiently
from acstor.versions.flows.work import Work
from acstor.versions.host_restore.states import RestoreState
from acstor.versions.services.compute import Server


def may_be_torn(work: Work) -> bool:
    """Return whether the disk may be half written, by the lock or by the host's word.

    The task's own lock is taken at its word. Where somebody has taken that off the host knows.
    """
    server = _server(work)
    if server is None:
        return False
    if rebuilding.is_torn(server):
        return True
    if _is_own(work, server):
        return False
    restores, host = work.services.restores, server.host
    if host is None:
        return True
    try:
        found = patiently(
            work, lambda: restores.progress(host, work.task.id, work.epoch), UNDO_SECONDS
        )
    except (exception.NotFoundError, exception.UnsupportedError):
        return False  # nothing was begun there
    except exception.UnavailableError:
        return True
    return found.state not in (RestoreState.DONE, RestoreState.FAILED)


def has_own_lock(work: Work) -> bool:
    """Return whether the server has the lock of this task; it says that the disk is whole."""
    server = _server(work)
    return server is not None and _is_own(work, server)


def _is_own(work: Work, server: Server) -> bool:
    return server.is_locked and server.lock_reason == rebuilding.lock_reason(work.task.id)


def _server(work: Work) -> Server | None:
    compute, server_id = work.services.compute, str(work.parameters["owner"])
    return patiently(work, lambda: compute.find_server(server_id), UNDO_SECONDS)


def mark_torn(work: Work, devices: Sequence[str]) -> None:
    """Have the lock say that disks may be half written, and so stay when the task has ended.

    :param devices: names of the disks.
    :raises ConflictError: when the lock does not say so then: Nova leaves a lock as it is that is
        set again by a user of the server's own project (nova/compute/api.py, ``lock``).
    """
    server = find(work)
    if _covers(server, devices):
        return
    # What another task has torn is named beside: a mending restore has to write all of it.
    torn = rebuilding.torn_devices(server).union(devices)
    # The root disk alone is what every release means.
    is_root = len(torn) == 1 and server.root_device in (None, *torn)
    named = () if is_root else sorted(torn)
    task = rebuilding.torn_task(server) or work.task.id
    _relock(work, rebuilding.torn_lock_reason(task, named))
    if not _covers(server := find(work), devices):
        raise exception.ConflictError(
            f"the lock of server {server.id} does not take another reason",
            hint="restore servers of the project of ACStor's own user by the method rebuild",
        )


def _covers(server: Server, devices: Sequence[str]) -> bool:
    """Return whether the lock says of all of the disks that they may be half written.

    A lock that is of a disk whose name nobody knows is left as it is.
    """
    torn = rebuilding.torn_devices(server)
    return rebuilding.is_torn(server) and (not torn or torn.issuperset(devices))


def unmark_torn(work: Work) -> None:
    """Have the lock be the task's own again, unless it is that of a disk that was torn before."""
    if is_marked(work):
        _relock(work, rebuilding.lock_reason(work.task.id))


def unmark_whole(work: Work) -> None:
    """Have the lock be the task's own, once the disk is whole, whoever had left it torn."""
    server = _server(work)
    if server is not None and rebuilding.is_torn(server):
        _relock(work, rebuilding.lock_reason(work.task.id))


def is_marked(work: Work) -> bool:
    """Return whether the lock says that this task may have left the disk half written."""
    server = _server(work)
    reason = "" if server is None else server.lock_reason or ""
    return reason.startswith(rebuilding.torn_lock_reason(work.task.id))


def _relock(work: Work, reason: str) -> None:
    """Have the lock of the server be for another reason."""
    compute, server_id = work.services.compute, str(work.parameters["owner"])
    work.fence()
    patiently(work, lambda: compute.lock(server_id, reason), UNDO_SECONDS)
