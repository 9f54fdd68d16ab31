"""Putting a version back into its server: Nova rebuilds it from an image of the version.

Id, name, addresses and volumes stay; a server that would lose something beside its root disk is
refused (:mod:`acstor.versions.rebuilding`). The image is made first, since that takes longest. Then
the server is locked, so that its owner does not change it meanwhile; its present disk becomes a
version, unless nobody wants that; and Nova is asked to rebuild it. What a running guest writes
between the last two is lost.

The lock outlives whoever set it: its reason names the task, so whoever goes on with the task knows
it as its own. A rebuild that has begun is not taken back: then the version of the former disk
stays, and the image, whatever comes after. Whether one has begun after an answer was lost, Nova's
list of the server's actions tells. Work that is stalled between its fence and Nova's answer for
longer than the lease may rebuild the server once more.

Source: CloudVS, §3.7, which has no instance whose id must stay; Nova's rebuild in place of it.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.version_refs import Version
from acstor.versions import rebuilding
from acstor.versions.flows import create_version, export_version, make_image
from acstor.versions.flows.chosen_method import reason_of
from acstor.versions.flows.export_version import version_of
from acstor.versions.flows.locked_server import (
    BUSY_SECONDS,
    busy,
    find,
    has_rebuild_begun,
    idle,
    is_of_image,
    lock,
    unlock,
)
from acstor.versions.flows.patience import POLL_SECONDS, patiently
from acstor.versions.flows.step import Step
from acstor.versions.flows.used_version import find_record, find_version
from acstor.versions.flows.work import CancelledError, Work
from acstor.versions.services.compute import Server

METHODS = ("auto", "rebuild")
"""Methods that this flow knows."""
KEPT_NAME = "before restore"
"""Name of the version of the disk as it was."""
CONFLICTS_MAX = 3
"""Times that Nova may refuse to rebuild a server in its present state, which it is not at work at:
it does so where shares are attached, too."""
STALL_SECONDS = 3600.0
"""Seconds for which a rebuild may stay at one step: a host may download the image."""
NOVA_STOP_SECONDS = 60.0
"""Seconds after which a server that was shut off is shut off by us, where Nova has not."""
STOP_SECONDS = 600.0
"""Seconds for which a server may take to be shut off again."""
KEEP_HINT = "or have the present disk be lost: --discard-current"
SHUTOFF = "SHUTOFF"
ERROR = "ERROR"


class _LostDiskError(exception.UnavailableError):
    """A server that Nova could not rebuild: its disk is gone."""

    code = "acstor.server.rebuild_failed"


class Check(export_version.Check):
    """Look at version and server, and keep the version until the end."""

    def act(self, work: Work) -> dict[str, Any]:
        """Return what the server is before anything is done."""
        method = str(work.parameters.get("method", "auto"))
        if method not in METHODS:
            raise exception.UnsupportedError(
                f"this release does not restore a server by the method {method}",
                hint="ask for the method rebuild or auto",
            )
        version, server = version_of(work), find(work)
        _require_restorable(work, version, server)
        return {
            **super().act(work),
            "device": version.record.disk.device,
        }


class Upload(make_image.Upload):
    """Make the image, unless there is one."""

    share_end = 0.5

    def undo(self, work: Work) -> None:
        """Remove the image, unless the server is of it."""
        made = work.result_of(self.step)
        if made is None or not is_of_image(work, made["image_id"]):
            super().undo(work)


class Hold(make_image.Hold):
    """Have the version stay for as long as the image."""

    share = 0.5

    def undo(self, work: Work) -> None:
        """Let it go, unless the image stays."""
        made = work.result_of(Upload.step)
        if made is not None and not is_of_image(work, made["image_id"]):
            super().undo(work)


class Lock(Step):
    """Keep the server's owner from changing it, and wait until it is idle."""

    step = "lock"
    share = 0.52

    def act(self, work: Work) -> dict[str, Any]:
        """Return the server's status, and a name for its latest rebuild before this task's."""
        lock(work)
        server = idle(work)
        _require_restorable(work, version_of(work), server)
        last = patiently(work, lambda: work.services.compute.last_rebuild(server.id))
        return {"status": server.status, "last_rebuild": last}

    def undo(self, work: Work) -> None:
        """Take the lock off."""
        unlock(work)


class Locate(create_version.Locate):
    """Find the host that has the disk."""

    share = 0.55

    def act(self, work: Work) -> dict[str, Any]:
        """Return where to ask for a version of the disk as it is; nothing: nobody wants one."""
        if not work.parameters.get("keep_current", True):
            return {}
        with _keeping():
            found = super().act(work)
        return {
            **found,
            "wanted": {
                "name": KEPT_NAME,
                "trigger": Trigger.RESTORE.value,
                "devices": [work.result_of(Check.step)["device"]],
            },
        }


class Capture(create_version.Capture):
    """Have the host capture the disk as it is."""

    share = 0.56

    def act(self, work: Work) -> dict[str, Any]:
        """Return the version, once the moment is over."""
        if not work.result_of(Locate.step):
            return {}
        with _keeping():
            return super().act(work)

    def undo(self, work: Work) -> None:
        """Remove it, unless the disk is lost: then it is all there is of that."""
        place = work.result_of(Locate.step)
        if not place:
            return
        device = work.result_of(Check.step)["device"]
        kept = work.versions.find(work.name_of(f"disk {device}"))
        is_whole = kept is not None and kept.record.is_restorable
        if is_whole and has_rebuild_begun(work, work.result_of(Lock.step)["last_rebuild"]):
            work.note(f"the former disk of server {work.parameters['owner']} stays as a version")
            create_version.forget(work, place["host"])
        else:
            super().undo(work)


class Commit(create_version.Commit):
    """Wait until the origin has all of it."""

    share = 0.6

    def act(self, work: Work) -> dict[str, Any]:
        """Return its id."""
        if not work.result_of(Locate.step):
            return {}
        with _keeping():
            return super().act(work)


class Index(create_version.Index):
    """Have the lists show it, and look once more at what the server would lose."""

    share = 0.78

    def act(self, work: Work) -> dict[str, Any]:
        """Return its id; None where nobody wants it."""
        if not work.result_of(Locate.step):
            return {"version_id": None}
        (kept,) = super().act(work)["versions"]
        record = find_version(work, kept).record
        server = find(work)
        rebuilding.require_no_loss(server, rebuilding.losses(server, {}, record))
        return {"version_id": kept}


class Rebuild(Step):
    """Have Nova begin."""

    step = "rebuild"
    share = 0.8

    def act(self, work: Work) -> dict[str, Any]:
        """Return nothing of interest; there is no way back but to the version that was kept."""
        image_id = work.result_of(Upload.step)["image_id"]
        before = work.result_of(Lock.step)["last_rebuild"]
        end, conflicts = work.clock() + BUSY_SECONDS, 0
        while not has_rebuild_begun(work, before):
            error = _ask_rebuild(work, find(work), image_id)
            if error is None:
                break
            is_busy = isinstance(error, rebuilding.BusyServerError)
            conflicts += isinstance(error, exception.ConflictError) and not is_busy
            if work.clock() >= end or conflicts == CONFLICTS_MAX:
                raise error
            work.wait(POLL_SECONDS)
        if (server := find(work)).image != image_id:
            raise exception.ConflictError(f"somebody else has rebuilt server {server.id}")
        return {}


class Settle(Step):
    """Wait until Nova has done it."""

    step = "settle"
    share = 0.82

    def act(self, work: Work) -> dict[str, Any]:
        """Return the status of the server then."""
        server = self._rebuilt(work)
        if server.status == ERROR:
            kept = work.result_of(Index.step)["version_id"]
            raise _LostDiskError(
                f"Nova could not rebuild server {server.id}: {server.fault or 'without a reason'}",
                hint="restore a version again; "
                + (f"its former disk is version {kept}" if kept else "its former disk may be lost"),
            )
        if work.result_of(Lock.step)["status"] == SHUTOFF:
            return {"status": _shut_off(work)}
        return {"status": server.status}

    @staticmethod
    def _rebuilt(work: Work) -> Server:
        """Return the server when Nova is at nothing with it any more.

        :raises DeadlineError: when it goes no step further.
        """
        state, moved_at = None, work.clock()
        while (server := find(work)).task_state is not None:
            if server.task_state != state:
                state, moved_at = server.task_state, work.clock()
            if work.clock() - moved_at > STALL_SECONDS:
                raise exception.DeadlineError(
                    f"the rebuild of server {server.id} is at {state} for {STALL_SECONDS:g} s",
                    hint=f"see nova-compute on host {server.host}",
                )
            work.wait(POLL_SECONDS)
        return server


class Finish(export_version.Finish):
    """Unlock the server, and let the version go."""

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        unlock(work)
        place = work.result_of(Locate.step)
        if place:
            create_version.forget(work, place["host"])
        made = super().act(work)
        found = work.result_of(make_image.Find.step)["image_id"]
        return {
            "server_id": str(work.parameters["owner"]),
            "version_id": made["version_id"],
            "kept_version_id": work.result_of(Index.step)["version_id"],
            "image_id": made["image_id"],
            "method": "rebuild",
            "reason": reason_of(work.parameters) or rebuilding.REASON,
            "bytes_moved": made["size_bytes"] if found is None else 0,
            "status": work.result_of(Settle.step)["status"],
        }


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [
        Check(),
        make_image.Find(),
        Upload(),
        Hold(),
        Lock(),
        Locate(),
        Capture(),
        Commit(),
        Index(),
        Rebuild(),
        Settle(),
        Finish(),
    ]


def _require_restorable(work: Work, version: Version, server: Server) -> None:
    """Refuse a server into which a version cannot be put without a loss.

    :raises AcstorError: saying why.
    """
    patiently(
        work,
        lambda: rebuilding.require_restorable(
            server,
            version.id,
            version.record,
            work.services.images.properties,
            functools.partial(find_record, work),
            work.task.id,
        ),
    )


def _ask_rebuild(work: Work, server: Server, image_id: str) -> exception.AcstorError | None:
    """Ask Nova once, where it is at nothing else with the server.

    :returns: why it may not have begun; None: it has.
    :raises AcstorError: when it never will.
    """
    if server.task_state is not None:
        return busy(server)
    rebuilding.require_state(server)
    if not server.is_locked:
        raise rebuilding.BusyServerError(f"somebody has unlocked server {server.id}")
    rebuilding.require_unlocked(server, work.task.id)
    work.fence()
    try:
        work.services.compute.rebuild(server.id, image_id)
    except exception.AcstorError as error:
        # Of two requests, one whose answer was lost, the later one is refused by a conflict.
        if not error.is_transient and not isinstance(error, exception.ConflictError):
            raise
        return error
    return None


def _shut_off(work: Work) -> str:
    """Have a server be shut off that was so before; Nova does it itself, a moment later.

    The disk is restored: what fails here is told, and takes nothing back.

    :returns: its status.
    """
    asks_at = work.clock() + NOVA_STOP_SECONDS
    end = work.clock() + STOP_SECONDS
    while (server := find(work)).status != SHUTOFF or server.task_state is not None:
        if work.clock() >= end:
            work.note(f"server {server.id} is not shut off again: it is {server.status}")
            break
        if server.task_state is None and work.clock() >= asks_at:
            asks_at = work.clock() + NOVA_STOP_SECONDS
            work.fence()
            with contextlib.suppress(exception.ConflictError, exception.UnavailableError):
                work.services.compute.stop(server.id)
        work.wait(POLL_SECONDS)
    return server.status


@contextlib.contextmanager
def _keeping() -> Iterator[None]:
    """Have a failure say that it is about the present disk, and what else may be asked for."""
    try:
        yield
    except (CancelledError, exception.FencedError):
        raise
    except exception.AcstorError as error:
        raise type(error)(
            f"the present disk cannot be kept: {error.message}", hint=f"{error.hint}; {KEEP_HINT}"
        ) from error
