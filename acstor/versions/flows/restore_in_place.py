"""Putting a version back into its server in place: its host writes it into the disk.

The server is locked, stopped where it runs, its present disk becomes a version, and the host writes
what the disk has otherwise than the version. Then the server is started again where it ran. Nothing
beside the disk is touched: UEFI variables, a virtual TPM, ephemeral disks and swap stay as they
are, which a rebuild would destroy.

A disk that is half written must not be started. So the server stays locked while it is, for a
reason that says so, that is set before the host may write, and that nobody sweeps. Where the task
fails in mid-write, the version of the present disk is written back before anything else is undone;
where that fails as well, the lock stays until a version is restored into the server in place. A
disk that has become the version as a whole stays so, whatever comes after, and the version of the
former one with it. The host knows of half-written disks, too (``acstor/agent/restores/table.py``).

Source: CloudVS, §3.7, in-place restore; what the host does of it is in
``acstor/agent/restores/writing.py``.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.version_refs import Version
from acstor.versions import rebuilding, writing_in_place
from acstor.versions.database.tasks import Progress
from acstor.versions.flows import create_version, export_version
from acstor.versions.flows.chosen_method import reason_of
from acstor.versions.flows.export_version import version_of
from acstor.versions.flows.locked_server import UNDO_SECONDS, busy, find, idle, lock, unlock
from acstor.versions.flows.patience import POLL_SECONDS, patiently
from acstor.versions.flows.restore_server import ERROR, KEPT_NAME, STOP_SECONDS
from acstor.versions.flows.step import Step
from acstor.versions.flows.torn_server import (
    has_own_lock,
    is_marked,
    mark_torn,
    may_be_torn,
    unmark_torn,
    unmark_whole,
)
from acstor.versions.flows.used_version import find_record
from acstor.versions.flows.work import CancelledError, Work
from acstor.versions.host_restore.progress import RestoreProgress, error_of
from acstor.versions.host_restore.request import RestoreRequest
from acstor.versions.host_restore.states import ENDED, RestoreState
from acstor.versions.services.compute import Server
from acstor.versions.writing_in_place import (
    ACTIVE,
    RESTORABLE,
    SHUTOFF,
    require_kept,
    require_unlocked,
)

METHOD = "in_place"
"""Name of the method."""
POWERING_ON = "powering-on"
"""Task state of a server that is being started (nova/compute/task_states.py)."""
ATTEMPTS_MAX = 5
"""Times that a host may begin to write before it is given up; each goes on where one has ended."""


class Check(export_version.Check):
    """Look at version and server, and keep the version until the end."""

    def act(self, work: Work) -> dict[str, Any]:
        """Return the device of the disk."""
        require_kept(is_kept=bool(work.parameters.get("keep_current", True)))
        version, server = version_of(work), find(work)
        _require_restorable(work, version, server)
        return {**super().act(work), "device": version.record.disk.device}


class Lock(Step):
    """Keep the server's owner from changing it, and wait until it is idle."""

    step = "lock"
    share = 0.02

    def act(self, work: Work) -> dict[str, Any]:
        """Return the server's status before; the lock of one that is half written stays."""
        if not rebuilding.is_torn(find(work)):
            lock(work)
        server = idle(work)
        _require_restorable(work, version_of(work), server)
        return {"status": server.status}

    def undo(self, work: Work) -> None:
        """Take the lock off; that of a disk that is half written stays."""
        unlock(work)


class Stop(Step):
    """Have the server be shut off."""

    step = "stop"
    share = 0.04

    def act(self, work: Work) -> dict[str, Any]:
        """Return nothing of interest."""
        _become(work, SHUTOFF, work.services.compute.stop)
        return {}

    def undo(self, work: Work) -> None:
        """Start it again where it ran, unless its disk is half written."""
        before = work.result_of(Lock.step)
        if before is not None and before["status"] == ACTIVE:
            _start_again(work)


class Locate(create_version.Locate):
    """Find the host that has the disk."""

    share = 0.1
    takes_torn = True

    def act(self, work: Work) -> dict[str, Any]:
        """Return where to ask for a version of the disk as it is.

        :raises UnsupportedError: when the host is of a release that restores nothing in place.
        """
        place = super().act(work)
        _knows(work, place["host"])  # asked before anything is done, and the server locked for it
        return {
            **place,
            "wanted": {
                "name": KEPT_NAME,
                "trigger": Trigger.RESTORE.value,
                "devices": [work.result_of(Check.step)["device"]],
            },
        }

    def undo(self, work: Work) -> None:
        """Have the host forget the restore: nobody asks any more what has become of the disk."""
        place = work.result_of(self.step)
        if place is not None:
            _forget(work, place["host"])


class Capture(create_version.Capture):
    """Have the host capture the disk as it is."""

    share = 0.12

    def undo(self, work: Work) -> None:
        """Remove the version, unless the disk is another one now, or may be half written."""
        place = work.result_of(Locate.step)
        kept = work.versions.find(work.name_of(f"disk {work.result_of(Check.step)['device']}"))
        is_whole = place is not None and kept is not None and kept.record.is_restorable
        if is_whole and (may_be_torn(work) or _is_restored(work, place["host"])):
            work.note(f"the former disk of server {work.parameters['owner']} stays as a version")
            create_version.forget(work, place["host"])
        else:
            super().undo(work)


class Commit(create_version.Commit):
    """Wait until the origin has all of it."""

    share = 0.3


class Index(create_version.Index):
    """Have the lists show it, and keep it until the end."""

    share = 0.45

    def act(self, work: Work) -> dict[str, Any]:
        """Return its id."""
        (kept,) = super().act(work)["versions"]
        work.fence()
        if _use_of(work) not in work.versions.get(kept).record.uses:
            work.versions.begin_use(kept, _use_of(work))
        return {"version_id": kept}

    def undo(self, work: Work) -> None:
        """Let it go."""
        for version_id in create_version.possible_versions(work):
            _let_kept_go(work, version_id)


class Write(Step):
    """Have the host write the version into the disk."""

    step = "write"
    share = 0.5

    def act(self, work: Work) -> dict[str, Any]:
        """Return the account of it; until it is there the lock says that the disk is torn."""
        _require_stopped(work, work.result_of(Locate.step)["host"])
        mark_torn(work)
        found = _written(work, str(work.parameters["version_id"]))
        unmark_whole(work)
        return {
            "fetched_bytes": found.fetched_bytes,
            "local_bytes": found.local_bytes,
            "written_bytes": found.written_bytes,
        }

    def undo(self, work: Work) -> None:
        """Write the present disk back, where something was written; else keep the server locked.

        A disk that has become the version as a whole stays so: the server may run already.
        """
        kept = work.result_of(Index.step)
        if kept is None or work.result_of(self.step) is not None:
            return
        host = work.result_of(Locate.step)["host"]
        try:
            _take_back(work, host, kept["version_id"])
            unmark_torn(work)
        except exception.AcstorError as error:
            with contextlib.suppress(exception.NotFoundError):
                mark_torn(work)  # somebody may have unlocked it meanwhile
            work.note(
                f"the disk of server {work.parameters['owner']} may be half written, and the "
                f"server stays locked: {exception.one_line(error)}"
            )


class Start(Step):
    """Start the server again where it ran."""

    step = "start"
    share = 0.96

    def act(self, work: Work) -> dict[str, Any]:
        """Return the status of the server then."""
        if work.result_of(Lock.step)["status"] == ACTIVE:
            _start_again(work)
        return {"status": find(work).status}


class Finish(Step):
    """Unlock the server, let the version go, and have the host forget."""

    step = "finish"
    share = 0.98

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        unlock(work)
        host = work.result_of(Locate.step)["host"]
        create_version.forget(work, host)
        kept = work.result_of(Index.step)["version_id"]
        _let_kept_go(work, kept)
        export_version.let_go(work)
        # Last of all: were the task undone after that, nobody knew that the disk is restored.
        _forget(work, host)
        made, why = work.result_of(Write.step), reason_of(work.parameters)
        written = made["written_bytes"]
        what = f"{written} bytes of the disk were other than in the version"
        return {
            "server_id": str(work.parameters["owner"]),
            "version_id": str(work.parameters["version_id"]),
            "kept_version_id": kept,
            "method": METHOD,
            "reason": f"{why}; {written} bytes were written" if why else what,
            "bytes_moved": made["fetched_bytes"],
            "status": work.result_of(Start.step)["status"],
        }


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [
        Check(),
        Lock(),
        Stop(),
        Locate(),
        Capture(),
        Commit(),
        Index(),
        Write(),
        Start(),
        Finish(),
    ]


def _require_restorable(work: Work, version: Version, server: Server) -> None:
    patiently(
        work,
        lambda: writing_in_place.require_restorable(
            server,
            version.id,
            version.record,
            work.services.images.properties,
            functools.partial(find_record, work),
            work.task.id,
        ),
    )


def _use_of(work: Work) -> str:
    return f"{export_version.RESTORE_USE}{work.task.id}"


def _let_kept_go(work: Work, version_id: str) -> None:
    """End the use of the version of the present disk; uses of ended tasks are swept."""
    version = work.versions.find(version_id)
    if version is None or _use_of(work) not in version.record.uses:
        return
    work.fence()
    with contextlib.suppress(exception.NotFoundError, exception.UnavailableError):
        work.versions.end_use(version_id, _use_of(work))


# Nova


def _become(work: Work, status: str, ask: Callable[[str], None]) -> None:
    """Have a server get a status, by one operation of Nova; nothing where it has it.

    :raises DeadlineError: when it does not get it.
    """
    end = work.clock() + STOP_SECONDS
    while (server := find(work)).status != status or server.task_state is not None:
        if work.clock() >= end or server.status == ERROR:
            raise exception.DeadlineError(f"server {server.id} is {server.status}, not {status}")
        if server.task_state is None:
            require_unlocked(server, work.task.id)
            work.fence()
            # Of two requests, one whose answer was lost, the later one is refused by a conflict.
            with contextlib.suppress(exception.ConflictError, exception.UnavailableError):
                ask(server.id)
        work.wait(POLL_SECONDS)


def _start_again(work: Work) -> None:
    """Start a server that ran; the disk is whole, so what fails here is told only."""
    try:
        if not may_be_torn(work):
            _become(work, ACTIVE, work.services.compute.start)
    except exception.NotFoundError:
        if not work.is_reverting:
            raise
    except (exception.ConflictError, exception.UnavailableError) as error:
        work.note(f"server {work.parameters['owner']} is not started: {exception.one_line(error)}")


# The host


def _written(work: Work, version_id: str) -> RestoreProgress:
    """Have the host write a version into the disk; return the account once it is durable.

    :raises AcstorError: when it does not come to its end.
    """
    restores, host = work.services.restores, work.result_of(Locate.step)["host"]
    request = RestoreRequest(
        task=work.task.id,
        server=str(work.parameters["owner"]),
        device=work.result_of(Check.step)["device"],
        version=version_id,
        project=work.task.project,
        base_image=work.result_of(Locate.step)["base_image"],
    )
    attempts = 0
    while True:
        _require_stopped(work, host)
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
        if is_first and not work.is_reverting and not _knows(work, host):
            unmark_torn(work)
        raise


def _knows(work: Work, host: str) -> bool:
    """Return whether a host has a restore of this task.

    :raises UnsupportedError: when its release knows of no restores.
    """
    restores = work.services.restores
    try:
        patiently(work, lambda: restores.progress(host, work.task.id, work.epoch))
    except exception.NotFoundError:
        return False
    return True


def _require_stopped(work: Work, host: str) -> None:
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


def _take_back(work: Work, host: str, kept: str) -> None:
    """Write the present disk back where anything was written; the host forgets then.

    :raises AcstorError: when the disk may be half written still.
    """
    restores, task = work.services.restores, work.task.id
    try:
        found = patiently(work, lambda: restores.progress(host, task, work.epoch), UNDO_SECONDS)
    except exception.NotFoundError:
        if is_marked(work):
            _written(work, kept)  # the host has lost its record: only the disk knows
        return
    while found.state not in ENDED:
        restores.abort(host, task, work.epoch)
        work.wait(POLL_SECONDS)
        found = patiently(work, lambda: restores.progress(host, task, work.epoch), UNDO_SECONDS)
    # Of a failed attempt to write it back nobody knows what the disk was before.
    if found.state is not RestoreState.FAILED or found.version == kept:
        mark_torn(work)  # somebody may have unlocked it meanwhile
        _written(work, kept)


def _is_restored(work: Work, host: str) -> bool:
    """Return whether the disk is the version that is restored; True where nobody can tell."""
    restores, task = work.services.restores, work.task.id
    try:
        found = patiently(work, lambda: restores.progress(host, task, work.epoch), UNDO_SECONDS)
    except exception.NotFoundError:
        # Nothing was begun, or it was forgotten at the very end, when the lock was off already.
        return not has_own_lock(work)
    except exception.UnavailableError:
        return True
    return found.version == work.parameters["version_id"] and found.state is RestoreState.DONE


def _forget(work: Work, host: str) -> None:
    """Have the host forget the restore; what it remembers of a disk that is whole does no harm."""
    try:
        work.services.restores.discard(host, work.task.id, work.epoch)
    except (exception.UnavailableError, exception.ConflictError) as error:
        work.note(f"host {host} remembers a restore: {exception.one_line(error)}")
