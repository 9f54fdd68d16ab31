"""Putting versions back into their server in place: its host writes them into the disks.

The server is locked, stopped where it runs, its present disks become versions of one moment, and
the host writes what the disks have otherwise than the versions: one disk, or a set of one moment.
Then the server is started again where it ran. UEFI variables are written where a version of the
root disk has them. Nothing else is touched: a virtual TPM, other disks and swap stay as they are,
which a rebuild would destroy.

A set is restored as a whole. The host's record is of all its disks, and so is the lock: as long as
one of them may be half written, all are taken to be.

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
from acstor.versions import rebuilding, writing_in_place
from acstor.versions.flows import create_version, disks_of_host, restored_disks
from acstor.versions.flows.chosen_method import reason_of
from acstor.versions.flows.disks_of_host import forget, is_restored, knows, require_stopped, written
from acstor.versions.flows.locked_server import find, idle, lock, unlock
from acstor.versions.flows.patience import POLL_SECONDS, patiently
from acstor.versions.flows.restore_server import ERROR, KEPT_NAME, STOP_SECONDS
from acstor.versions.flows.restored_disks import RestoredDisks
from acstor.versions.flows.step import Step
from acstor.versions.flows.torn_server import (
    mark_torn,
    may_be_torn,
    unmark_torn,
    unmark_whole,
)
from acstor.versions.flows.used_version import find_record
from acstor.versions.flows.work import Work
from acstor.versions.host_restore.request import RestoredDisk
from acstor.versions.services.compute import Server
from acstor.versions.writing_in_place import ACTIVE, SHUTOFF, require_kept, require_unlocked

METHOD = "in_place"
"""Name of the method."""


class Check(Step):
    """Look at versions and server, and keep the versions until the end."""

    step = "check"

    def act(self, work: Work) -> dict[str, Any]:
        """Return the disks, and the versions of each."""
        require_kept(is_kept=bool(work.parameters.get("keep_current", True)))
        disks = _restorable_disks(work, find(work))
        restored_disks.keep(work, disks.versions)
        return disks.to_result()

    def undo(self, work: Work) -> None:
        """Let the versions go."""
        restored_disks.end_uses(work, restored_disks.wanted_ids(work))


class Lock(Step):
    """Keep the server's owner from changing it, and wait until it is idle."""

    step = "lock"
    share = 0.02

    def act(self, work: Work) -> dict[str, Any]:
        """Return the server's status before; the lock of one that is half written stays."""
        if not rebuilding.is_torn(find(work)):
            lock(work)
        server = idle(work)
        _restorable_disks(work, server)
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
        """Start it again where it ran, unless a disk is half written."""
        before = work.result_of(Lock.step)
        if before is not None and before["status"] == ACTIVE:
            _start_again(work)


class Locate(create_version.Locate):
    """Find the host that has the disks."""

    share = 0.1
    takes_torn = True

    def act(self, work: Work) -> dict[str, Any]:
        """Return where to ask for versions of the disks as they are.

        :raises UnsupportedError: when the host is of a release that restores nothing in place, or
            one disk only.
        """
        place = super().act(work)
        # Asked before anything is written, and the server marked for it.
        knows(work, place["host"])
        request = disks_of(work).request(work, place["base_image"])
        if request.is_set:
            restores = work.services.restores
            patiently(work, lambda: restores.check(place["host"], request, work.epoch))
        return {
            **place,
            "wanted": {
                "name": KEPT_NAME,
                "trigger": Trigger.RESTORE.value,
                "devices": disks_of(work).devices,
            },
        }

    def undo(self, work: Work) -> None:
        """Have the host forget the restore: nobody asks any more what has become of the disk."""
        place = work.result_of(self.step)
        if place is not None:
            forget(work, place["host"])


class Capture(create_version.Capture):
    """Have the host capture the disks as they are."""

    share = 0.12

    def undo(self, work: Work) -> None:
        """Remove the versions, unless the disks are others now, or may be half written."""
        place = work.result_of(Locate.step)
        kept = [work.versions.find(work.name_of(f"disk {one}")) for one in disks_of(work).devices]
        is_whole = all(each is not None and each.record.is_restorable for each in kept)
        is_taken = place is not None and is_whole
        if is_taken and (may_be_torn(work) or is_restored(work, place["host"], disks_of(work))):
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
        """Return the versions of the present disks.

        :raises ConflictError: when the present UEFI variables are in none of them.
        """
        super().act(work)
        found = work.result_of(Capture.step)["versions"]
        disks = tuple(RestoredDisk(one, found[one]) for one in disks_of(work).devices)
        restored_disks.keep(work, [disk.version for disk in disks])
        return RestoredDisks(disks, _kept_variables(work, disks)).to_result()

    def undo(self, work: Work) -> None:
        """Let them go."""
        for version_id in create_version.possible_versions(work):
            _let_kept_go(work, version_id)


class Write(Step):
    """Have the host write the versions into the disks."""

    step = "write"
    share = 0.5

    def act(self, work: Work) -> dict[str, Any]:
        """Return the account of it; until it is there the lock says that the disks are torn."""
        place, disks = work.result_of(Locate.step), disks_of(work)
        require_stopped(work, place["host"])
        mark_torn(work, disks.devices)
        found = written(work, place, disks)
        unmark_whole(work)
        return {
            "fetched_bytes": found.fetched_bytes,
            "local_bytes": found.local_bytes,
            "written_bytes": found.written_bytes,
        }

    def undo(self, work: Work) -> None:
        """Write the present disks back, where something was written; else keep the server locked.

        Disks that have become the versions as a whole stay so: the server may run already.
        """
        kept = kept_of(work)
        if kept is None or work.result_of(self.step) is not None:
            return
        try:
            disks_of_host.take_back(work, work.result_of(Locate.step), kept)
            unmark_torn(work)
        except exception.AcstorError as error:
            with contextlib.suppress(exception.NotFoundError):
                mark_torn(work, kept.devices)  # somebody may have unlocked it meanwhile
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
        disks, kept = disks_of(work), kept_of(work)
        assert kept is not None  # of an earlier step
        for version_id in kept.versions:
            _let_kept_go(work, version_id)
        restored_disks.let_go(work, disks.versions)
        # Last of all: were the task undone after that, nobody knew that the disk is restored.
        forget(work, host)
        made, why = work.result_of(Write.step), reason_of(work.parameters)
        count = made["written_bytes"]
        what = f"{count} bytes of the disk were other than in the version"
        return {
            "server_id": str(work.parameters["owner"]),
            "version_id": disks.first,
            "kept_version_id": kept.first,
            "disks": [
                {"disk": one.device, "version_id": one.version, "kept_version_id": was.version}
                for one, was in zip(disks.disks, kept.disks, strict=True)
            ],
            "nvram_version_id": disks.nvram,
            "method": METHOD,
            "reason": f"{why}; {count} bytes were written" if why else what,
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


def disks_of(work: Work) -> RestoredDisks:
    """Return the disks, and the versions that are written into them."""
    found = work.result_of(Check.step)
    if "disks" not in found:  # of the release before, which knew one disk
        disk = RestoredDisk(found["device"], str(work.parameters["version_id"]))
        return RestoredDisks((disk,))
    return RestoredDisks.from_result(found)


def kept_of(work: Work) -> RestoredDisks | None:
    """Return the versions of the present disks; None: they are not kept yet."""
    found = work.result_of(Index.step)
    if found is not None and "disks" not in found:  # of the release before
        disk = RestoredDisk(disks_of(work).devices[0], found["version_id"])
        return RestoredDisks((disk,))
    return None if found is None else RestoredDisks.from_result(found)


def _kept_variables(work: Work, disks: tuple[RestoredDisk, ...]) -> str | None:
    """Return which version of the present disks has the UEFI variables; None: they stay.

    :raises ConflictError: when none has, and they are to be replaced: there were no way back.
    """
    if disks_of(work).nvram is None:
        return None
    for disk in disks:
        if work.versions.get(disk.version).record.nvram is not None:
            return disk.version
    raise exception.ConflictError(
        f"the present UEFI variables of server {work.parameters['owner']} were not captured",
        hint="start the server and stop it, which makes them; or restore with "
        "--keep-uefi-variables",
    )


def _restorable_disks(work: Work, server: Server) -> RestoredDisks:
    """Return the disks; see :func:`.writing_in_place.require_restorable`."""
    versions = restored_disks.wanted_versions(work)
    disks = restored_disks.chosen_disks(work, versions, server)
    for version in versions:
        patiently(
            work,
            functools.partial(
                writing_in_place.require_restorable,
                server,
                version.id,
                version.record,
                work.services.images.properties,
                functools.partial(find_record, work),
                work.task.id,
                is_named=restored_disks.is_named(work),
            ),
        )
    writing_in_place.require_covered(server, disks.devices)
    return disks


def _let_kept_go(work: Work, version_id: str) -> None:
    """End the use of a version of a present disk; uses of ended tasks are swept."""
    version, use = work.versions.find(version_id), restored_disks.use_of(work)
    if version is None or use not in version.record.uses:
        return
    work.fence()
    with contextlib.suppress(exception.NotFoundError, exception.UnavailableError):
        work.versions.end_use(version_id, use)


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
