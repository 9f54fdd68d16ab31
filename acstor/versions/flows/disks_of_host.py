"""Disks of a server as a flow has their host write them: begun, followed, taken back, forgotten."""

from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.versions import rebuilding
from acstor.versions.database.tasks import Progress
from acstor.versions.flows.locked_server import UNDO_SECONDS, busy, find
from acstor.versions.flows.patience import POLL_SECONDS, patiently
from acstor.versions.flows.restored_disks import RestoredDisks
from acstor.versions.flows.torn_server import has_own_lock, is_marked, mark_torn, unmark_torn
from acstor.versions.flows.work import CancelledError, Work
from acstor.versions.host_restore.progress import RestoreProgress, error_of
from acstor.versions.host_restore.request import RestoreRequest
from acstor.versions.host_restore.states import ENDED, RestoreState
from acstor.versions.writing_in_place import RESTORABLE, SHUTOFF, require_unlocked

POWERING_ON = "powering-on"
"""Task state of a server that is being started (nova/compute/task_states.py)."""
ATTEMPTS_MAX = 5
"""Times that a host may begin to write before it is given up; each goes on where one has ended."""


def written(work: Work, place: Mapping[str, Any], disks: RestoredDisks) -> RestoreProgress:
    """Have the host write versions into disks; return the account once all is durable.

    :param place: ``host`` and ``base_image`` of the server.
    :raises AcstorError: when it does not come to its end.
    """
    restores, host = work.services.restores, place["host"]
    request = disks.request(work, place["base_image"])
    attempts = 0
    while True:
        require_stopped(work, host)
        work.fence()
        found = _begun(work, host, request, is_first=not attempts)
        while found.state not in ENDED:
            work.report(
                Progress(bytes_done=found.done_bytes, bytes_total=found.total_bytes or None)
            )
            work.wait(POLL_SECONDS)
            found = patiently(work, lambda: restores.progress(host, work.task.id, work.epoch))
        if found.state is RestoreState.DONE:
            _require_in_place(work, host)
            return found
        error, attempts = error_of(found), attempts + 1
        may_pass = error.is_transient or isinstance(error, exception.FencedError)
        if attempts == ATTEMPTS_MAX or not may_pass:
            raise error
        work.wait(POLL_SECONDS)


def _begun(work: Work, host: str, request: RestoreRequest, *, is_first: bool) -> RestoreProgress:
    """Have the host begin; where it refuses right away nothing is written, and the lock says so.

    :raises AcstorError: when it does not.
    """
    restores = work.services.restores
    try:
        return patiently(work, lambda: restores.start(host, request, work.epoch))
    except (CancelledError, exception.UnavailableError):
        raise  # it may have begun
    except exception.AcstorError:
        if is_first and not work.is_reverting and not knows(work, host):
            unmark_torn(work)
        raise


def knows(work: Work, host: str) -> bool:
    """Return whether a host has a restore of this task.

    :raises UnsupportedError: when its release knows of no restores.
    """
    restores = work.services.restores
    try:
        patiently(work, lambda: restores.progress(host, work.task.id, work.epoch))
    except exception.NotFoundError:
        return False
    return True


def require_stopped(work: Work, host: str) -> None:
    """Refuse a server whose disk somebody else may be at.

    :raises BusyServerError: when somebody has unlocked it, or Nova is at work with it.
    :raises ConflictError: when it runs, or is on another host.
    """
    server = find(work)
    if server.task_state is not None:
        raise busy(server)
    if not server.is_locked:
        raise rebuilding.BusyServerError(f"somebody has unlocked server {server.id}")
    require_unlocked(server, work.task.id)
    if server.status != SHUTOFF or server.host != host:
        raise exception.ConflictError(
            f"somebody has started or moved server {server.id}: it is {server.status} on host "
            f"{server.host}, not shut off on {host}"
        )


def _require_in_place(work: Work, host: str) -> None:
    """Refuse a server whose disk was moved, or made anew, while it was written.

    :raises ConflictError: then: what the server has for a disk is not what was written.
    """
    server = find(work)
    is_here = server.host == host and server.status in RESTORABLE
    if not is_here or server.task_state not in (None, POWERING_ON):
        raise exception.ConflictError(
            f"somebody has moved or changed server {server.id} while its disk was written: it is "
            f"{server.status} ({server.task_state or 'idle'}) on host {server.host}",
            hint="restore a version into it in place, once Nova is done with it",
        )


def take_back(work: Work, place: Mapping[str, Any], kept: RestoredDisks) -> None:
    """Write the present disks back where anything was written; the host forgets then.

    :param place: as of :func:`written`.
    :raises AcstorError: when a disk may be half written still.
    """
    restores, host, task = work.services.restores, place["host"], work.task.id
    try:
        found = patiently(work, lambda: restores.progress(host, task, work.epoch), UNDO_SECONDS)
    except exception.NotFoundError:
        if is_marked(work):
            written(work, place, kept)  # the host has lost its record: only the disks know
        return
    while found.state not in ENDED:
        restores.abort(host, task, work.epoch)
        work.wait(POLL_SECONDS)
        found = patiently(work, lambda: restores.progress(host, task, work.epoch), UNDO_SECONDS)
    # Of a failed attempt to write it back nobody knows what the disk was before.
    if found.state is not RestoreState.FAILED or found.version == kept.first:
        mark_torn(work, kept.devices)  # somebody may have unlocked it meanwhile
        written(work, place, kept)


def is_restored(work: Work, host: str, disks: RestoredDisks) -> bool:
    """Return whether disks are the versions that are restored; True where nobody can tell."""
    restores, task = work.services.restores, work.task.id
    try:
        found = patiently(work, lambda: restores.progress(host, task, work.epoch), UNDO_SECONDS)
    except exception.NotFoundError:
        # Nothing was begun, or it was forgotten at the very end, when the lock was off already.
        return not has_own_lock(work)
    except exception.UnavailableError:
        return True
    return found.version == disks.first and found.state is RestoreState.DONE


def forget(work: Work, host: str) -> None:
    """Have the host forget the restore; what it remembers of a disk that is whole does no harm."""
    try:
        work.services.restores.discard(host, work.task.id, work.epoch)
    except (exception.UnavailableError, exception.ConflictError) as error:
        work.note(f"host {host} remembers a restore: {exception.one_line(error)}")
