"""Taking versions of the disks of a server, or of a volume, of one moment.

The host captures them and stores them in the origin; here it is found, asked, and waited for. What
is undone where that fails: the capture on its host, records of versions that are captured only, and
versions that were committed already, since nobody was told of them.
"""

import contextlib
import logging
import string
from collections.abc import Callable
from typing import Any, ClassVar

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.locks import parse_time
from acstor.repository.versions.record import Consistency, DiskKind, Trigger
from acstor.repository.versions.states import RESTORABLE, VersionState
from acstor.repository.volumes import record_refs
from acstor.versions import rebuilding
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.tasks import NewTask, Progress, TaskKind
from acstor.versions.database.version_index import (
    Filter,
    Operator,
    SortKey,
    VersionField,
    VersionQuery,
)
from acstor.versions.flows import volume_content
from acstor.versions.flows.patience import POLL_SECONDS, patiently
from acstor.versions.flows.step import Step
from acstor.versions.flows.work import Work
from acstor.versions.host_capture.progress import CaptureProgress
from acstor.versions.host_capture.request import CaptureRequest, VersionFields, WantedConsistency
from acstor.versions.host_capture.states import CaptureState
from acstor.versions.services.captures import LOST, READ
from acstor.versions.services.compute import Server

LOG = logging.getLogger(__name__)

ATTEMPTS_MAX = 3
"""Times that a host is asked to capture where what keeps it from that may pass."""
AGAIN_SECONDS = 10.0
"""Seconds before it is asked again."""
READ_SECONDS = 3600.0
"""Seconds that reading the disks may take, where the request says nothing else."""
UNDO_SECONDS = 60.0
"""Seconds for which a host is asked to forget a capture that is given up."""
PARENTS_MAX = 256
"""Newest versions of an owner that are looked through for the parent of each disk."""
BUSES = ("vd", "sd", "hd", "xvd")
"""Beginnings of the names of disks, which a letter ends."""
NO_DISK = frozenset({"SHELVED_OFFLOADED", "BUILD", "DELETED", "SOFT_DELETED", "ERROR"})
"""Statuses of servers of which no host has disks, or none that are whole."""


class _NoHostError(exception.UnsupportedError):
    """A server whose disks are on no host."""

    code = "acstor.server.without_host"
    default_hint = "unshelve or start it, then ask again"


class Locate(Step):
    """Find the host, the parents, and the base image.

    ``takes_torn``: whether a version is taken of a disk that is half written, too.
    """

    step = "locate"
    takes_torn: ClassVar[bool] = False

    def act(self, work: Work) -> dict[str, Any]:
        """Return where to ask for what."""
        owner = str(work.parameters["owner"])
        if TargetKind(work.parameters["kind"]) is TargetKind.VOLUME:
            found = _locate_volume(work, owner)
        else:
            found = _locate_server(work, owner, takes_torn=self.takes_torn)
        return {**found, "parents": _parents(work, owner)}


class Capture(Step):
    """Have the host capture the disks."""

    step = "capture"
    share = 0.1

    def act(self, work: Work) -> dict[str, Any]:
        """Return the versions by device, once the moment is over."""
        place = work.result_of(Locate.step)
        if place["host"] is None:
            return _publish_volume(work, place["parents"].get(""))
        captures = work.services.captures
        work.fence()
        request = request_of(work, place)
        found = _until(
            work,
            place["host"],
            lambda: captures.start(place["host"], request, work.epoch),
            READ | LOST,
            attempts=ATTEMPTS_MAX,
        )
        return {
            "versions": found.versions,
            "left_out": dict(found.left_out),
            "consistency": found.consistency and found.consistency.value,
        }

    def undo(self, work: Work) -> None:
        """Have the host give it up, and remove what is in the origin of it."""
        place = work.result_of(Locate.step)
        if place is None:
            return
        made = set((work.result_of(self.step) or {}).get("versions", {}).values())
        if place["host"] is None:
            _remove_versions(work, made | set(possible_versions(work)))
            return
        try:
            _give_up(work, place["host"])
        except exception.AcstorError as error:
            work.note(f"host {place['host']} keeps a capture: {exception.one_line(error)}")
            # It may have begun records that nobody has told of.
            made |= set(possible_versions(work))
        _remove_versions(work, made)


class Commit(Step):
    """Wait until the origin has all of it."""

    step = "commit"
    share = 0.5

    def act(self, work: Work) -> dict[str, Any]:
        """Return the ids of the versions, which are restore points now."""
        host, task = work.result_of(Locate.step)["host"], work.task.id
        if host is None:
            return {"versions": sorted(work.result_of(Capture.step)["versions"].values())}
        captures = work.services.captures
        done = frozenset({CaptureState.COMMITTED}) | LOST
        found = _until(work, host, lambda: captures.progress(host, task, work.epoch), done)
        return {"versions": sorted(found.versions.values())}


class Index(Step):
    """Have the lists show the versions."""

    step = "index"
    share = 0.9

    def act(self, work: Work) -> dict[str, Any]:
        """Return the ids of those that are there."""
        found = []
        for version_id in work.result_of(Commit.step)["versions"]:
            row = work.refresh(version_id)
            if row is None or row.state not in RESTORABLE:
                raise exception.ConflictError(f"version {version_id} was deleted meanwhile")
            found.append(version_id)
        return {"versions": found}


class Finish(Step):
    """Have the host forget the capture, and retention look at the disks."""

    step = "finish"
    share = 0.95

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        host = work.result_of(Locate.step)["host"]
        if host is not None:
            forget(work, host)
        _queue_expiry(work)
        captured = work.result_of(Capture.step)
        return {
            "group_id": work.task.id,
            "versions": work.result_of(Index.step)["versions"],
            "left_out": captured["left_out"],
            "consistency": captured["consistency"],
        }


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Locate(), Capture(), Commit(), Index(), Finish()]


def request_of(work: Work, place: dict[str, Any]) -> CaptureRequest:
    """Return the request for the host.

    :param place: see :class:`Locate`; ``wanted`` is what other flows want than the parameters say.
    """
    wanted = {**work.parameters, **place.get("wanted", {})}
    devices = wanted.get("devices")
    expires_at = wanted.get("expires_at")
    version = VersionFields(
        project=work.task.project,
        trigger=Trigger(wanted.get("trigger", Trigger.MANUAL)),
        name=str(wanted.get("name", "")),
        schedule=wanted.get("schedule"),
        slot=wanted.get("slot"),
        expires_at=expires_at and parse_time(expires_at, "expires_at").replace(microsecond=0),
        labels=dict(wanted.get("labels") or {}),
    )
    is_volume = TargetKind(wanted["kind"]) is TargetKind.VOLUME
    return CaptureRequest(
        task=work.task.id,
        kind=DiskKind.VOLUME if is_volume else DiskKind.INSTANCE,
        owner=str(wanted["owner"]),
        version=version,
        devices=None if devices is None else tuple(devices),
        parents=place["parents"],
        base_image=place["base_image"],
        consistency=WantedConsistency(wanted.get("consistency", WantedConsistency.BEST)),
        deadline_s=float(wanted.get("deadline_seconds", READ_SECONDS)),
    )


def _locate_server(work: Work, owner: str, *, takes_torn: bool) -> dict[str, Any]:
    if work.parameters.get("host"):
        # Of a notification: Nova may have another host for it by now, or no such server any more.
        server = None
        with contextlib.suppress(exception.AcstorError):  # it may be the last of the server
            server = work.services.compute.find_server(owner)
        _require_whole(server)
        return {
            "host": str(work.parameters["host"]),
            "base_image": work.parameters.get("base_image"),
        }
    server = patiently(work, lambda: work.services.compute.find_server(owner))
    if server is None or server.project != work.task.project:
        raise exception.NotFoundError(f"server {owner} does not exist")
    if not takes_torn:
        _require_whole(server)
    if server.host is None or server.status in NO_DISK:
        raise _NoHostError(f"server {owner} is {server.status} and has its disks on no host")
    return {"host": server.host, "base_image": server.image}


def _require_whole(server: Server | None) -> None:
    """Refuse a server whose disk is half written.

    A version of it would count as a restore point, and have retention remove a good one for it.

    :raises BusyServerError: then.
    """
    if server is not None and rebuilding.is_torn(server):
        rebuilding.require_unlocked(server)


def _locate_volume(work: Work, owner: str) -> dict[str, Any]:
    volume = record_refs.find_volume(work.versions.repository.origin, owner)
    if volume is None:
        raise exception.NotFoundError(f"volume {owner} does not exist")
    # Without an owner all of it is in the origin.
    return {"host": volume.record.owner, "base_image": None}


def _parents(work: Work, owner: str) -> dict[str, str]:
    """Return the newest restore point of each disk, by device."""
    field = VersionField.SERVER
    if TargetKind(work.parameters["kind"]) is TargetKind.VOLUME:
        field = VersionField.VOLUME
    query = VersionQuery(
        project=work.task.project,
        filters=(Filter(field, Operator.EQ, (owner,)),),
        sort_key=SortKey.CREATED_AT,
        limit=PARENTS_MAX,
    )
    found: dict[str, str] = {}
    with work.interrupting():
        rows = work.stores.versions.page(query)
    for row in rows:
        if row.is_restorable:
            found.setdefault(row.disk.device, row.id)
    return found


def _until(
    work: Work,
    host: str,
    begin: Callable[[], CaptureProgress],
    ends: frozenset[CaptureState],
    *,
    attempts: int = 1,
) -> CaptureProgress:
    """Wait until a capture is in one of some states.

    :param begin: returns the first progress; after a failure that may pass it begins anew.
    :param attempts: times that it is called.
    :raises AcstorError: the reason for which it came to nothing.
    """
    found = patiently(work, begin)
    shown: set[str] = set()
    while True:
        work.report(Progress(bytes_done=found.done_bytes, bytes_total=found.total_bytes or None))
        for version_id in set(found.versions.values()) - shown:
            if work.refresh(version_id) is not None:
                shown.add(version_id)
        if found.failure is not None:
            attempts -= 1
            error = found.failure.to_error()
            if not error.is_transient or attempts <= 0:
                raise error
            LOG.info("task %s: %s; it is captured again", work.task.id, exception.one_line(error))
            work.wait(AGAIN_SECONDS)
            found = patiently(work, begin)
            continue
        if found.state in LOST:
            raise exception.UnavailableError(f"host {host} gave the capture up")
        if found.state in ends:
            return found
        work.wait(POLL_SECONDS)
        found = patiently(
            work, lambda: work.services.captures.progress(host, work.task.id, work.epoch)
        )


def _publish_volume(work: Work, parent: str | None) -> dict[str, Any]:
    """Make a version of a volume that no host has open."""
    owner = str(work.parameters["owner"])
    volume = record_refs.find_volume(work.versions.repository.origin, owner)
    if volume is None:
        raise exception.NotFoundError(f"volume {owner} does not exist")
    trigger = Trigger(work.parameters.get("trigger", Trigger.MANUAL))
    version_id = volume_content.publish(
        work, volume, name=str(work.parameters.get("name", "")), trigger=trigger, parent=parent
    )
    return {"versions": {"": version_id}, "left_out": {}, "consistency": Consistency.CRASH.value}


def forget(work: Work, host: str) -> None:
    """Have a host forget a capture that is committed."""
    try:
        work.services.captures.discard(host, work.task.id, work.epoch)
    except exception.FencedError:
        raise
    except exception.AcstorError as error:
        # The versions are there, and nothing of their content is on the host any more.
        work.note(f"host {host} remembers a capture: {exception.one_line(error)}")


def _give_up(work: Work, host: str) -> None:
    """Have a host give the capture up and forget it.

    :raises UnavailableError: when it does not answer, or does not end.
    """
    captures, task = work.services.captures, work.task.id
    work.fence()
    captures.abort(host, task, work.epoch)
    end = work.clock() + UNDO_SECONDS
    while not captures.discard(host, task, work.epoch):
        if work.clock() >= end:
            raise exception.DeadlineError(f"host {host} did not end a capture in {UNDO_SECONDS} s")
        work.wait(POLL_SECONDS)


def possible_versions(work: Work) -> list[str]:
    """Return the ids that the versions of the task have, whatever the disks are called.

    A host names each after the task and the disk, so that a repeated order makes them once.
    """
    if TargetKind(work.parameters["kind"]) is TargetKind.VOLUME:
        return [work.name_of("disk ")]
    letters = string.ascii_lowercase
    return [work.name_of(f"disk {bus}{letter}") for bus in BUSES for letter in letters]


def _remove_versions(work: Work, made: set[str]) -> None:
    """Remove the versions that the capture has made, whatever became of them."""
    with work.interrupting():
        rows = work.stores.versions.page(
            VersionQuery(
                project=work.task.project,
                filters=(Filter(VersionField.GROUP, Operator.EQ, (work.task.id,)),),
            )
        )
    for version_id in sorted(made | {row.id for row in rows}):
        _remove_version(work, version_id)


def _remove_version(work: Work, version_id: str) -> None:
    store = work.versions
    version = version_refs.find_version(store.repository.origin, version_id)
    if version is not None and version.record.group == work.task.id:
        work.fence()
        if version.record.state is VersionState.CAPTURED:
            store.abandon(version_id)
        elif version.record.is_restorable:
            store.delete(version_id)
    work.refresh(version_id)


def _queue_expiry(work: Work) -> None:
    """Queue what looks which versions of the owner are not needed any more."""
    keep = work.parameters.get("keep")
    if not keep:
        return
    wanted = work.parameters
    new = NewTask(
        id=work.name_of("expire"),
        project=work.task.project,
        kind=TaskKind.EXPIRE,
        resource=work.task.resource,
        parameters={
            "kind": wanted["kind"],
            "owner": wanted["owner"],
            "keep": keep,
            "timezone": wanted.get("timezone", "UTC"),
            "schedule": wanted.get("schedule"),
            "triggers": [Trigger(wanted.get("trigger", Trigger.MANUAL)).value],
        },
    )
    with work.interrupting():
        work.stores.tasks.create(new)
