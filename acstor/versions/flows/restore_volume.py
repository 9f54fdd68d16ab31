"""Putting a version back into a volume that is attached nowhere: any version, not only the latest.

The present content becomes a version first, unless nobody wants that. Then the volume's record gets
the version's content in one change, which also says who asked: a worker that died or was stalled
cannot do it a second time over what was written since, nor after it was given up. Nothing is
copied.
"""

from typing import Any

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.record import DiskKind, Trigger
from acstor.repository.versions.version_refs import Version
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.record_refs import Volume
from acstor.repository.volumes.restoring import RestorableVolumes
from acstor.versions.flows import volume_content
from acstor.versions.flows.step import Step
from acstor.versions.flows.used_version import find_version, require_restorable, version_id_of
from acstor.versions.flows.work import Work


class Check(Step):
    """Look at version and volume, and keep the version until the end."""

    step = "check"

    def act(self, work: Work) -> dict[str, Any]:
        """Return the volume's id and epoch."""
        version, volume = version_of(work), volume_of(work)
        if volume.record.hosts or volume.record.owner is not None:
            raise exception.ConflictError(
                f"volume {volume.id} is attached", hint="detach it, then ask again"
            )
        if volume.record.size_bytes < version.record.size_bytes:
            raise exception.InvalidError(
                f"volume {volume.id} is smaller than version {version.id}",
                hint="extend the volume first",
            )
        work.fence()
        work.versions.begin_use(version.id, use_of(work))
        return {"volume_id": volume.id, "epoch": volume.record.epoch}

    def undo(self, work: Work) -> None:
        """Let the version go."""
        _end_use(work)


class Keep(Step):
    """Make a version of the present content."""

    step = "keep"
    share = 0.3

    def act(self, work: Work) -> dict[str, Any]:
        """Return its id, None where nobody wants it."""
        if not work.parameters.get("keep_current", True):
            return {"version_id": None}
        volume = volume_of(work)
        if volume.record.epoch != work.result_of(Check.step)["epoch"]:
            raise exception.ConflictError(f"volume {volume.id} was in use meanwhile")
        kept = volume_content.publish(work, volume, name="before restore", trigger=Trigger.RESTORE)
        work.refresh(kept)
        return {"version_id": kept}

    def undo(self, work: Work) -> None:
        """Remove it, unless the volume has lost what it has: then it is all there is of that."""
        kept = work.name_of("disk ")
        origin = work.versions.repository.origin
        version = version_refs.find_version(origin, version_id_of(work))
        checked = work.result_of(Check.step)
        if version is None or checked is None:
            return
        work.fence()
        if _volumes(work).give_up_restore(
            checked["volume_id"], version.record.content, by=work.task.id
        ):
            if work.versions.find(kept) is not None:
                work.versions.delete(kept)
            work.refresh(kept)


class Replace(Step):
    """Give the volume the version's content."""

    step = "replace"
    share = 0.6

    def act(self, work: Work) -> dict[str, Any]:
        """Return nothing of interest; there is no way back but to the version that was kept."""
        checked = work.result_of(Check.step)
        version = version_of(work)
        work.fence()
        _volumes(work).restore(
            checked["volume_id"], version.record.content, by=work.task.id, epoch=checked["epoch"]
        )
        return {}


class Finish(Step):
    """Let the version go."""

    step = "finish"
    share = 0.9

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task: nothing is moved, whatever the size."""
        try:
            _end_use(work)
        except exception.AcstorError as error:
            # The volume is as it shall be: that is not taken back for this.
            work.note(f"a use of the version is left: {exception.one_line(error)}")
        return {
            "volume_id": work.result_of(Check.step)["volume_id"],
            "kept_version_id": work.result_of(Keep.step)["version_id"],
            "method": "reference",
            "reason": "the volume refers to what the version has: nothing is moved",
            "bytes_moved": 0,
        }


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Check(), Keep(), Replace(), Finish()]


def use_of(work: Work) -> str:
    """Return the use that keeps the version meanwhile."""
    return f"restore/{work.task.id}"


def version_of(work: Work) -> Version:
    """Return the version that is restored.

    :raises NotFoundError: when the project has none with that id.
    :raises ConflictError: when it is no restore point.
    :raises UnsupportedError: when it is of a server's disk.
    """
    version_id = version_id_of(work)
    version = find_version(work, version_id)
    if version.record.disk.kind is not DiskKind.VOLUME:
        raise exception.UnsupportedError(
            f"version {version_id} is of a disk of a server, and cannot be put into a volume",
            hint="restore it into its server",
        )
    require_restorable(version, use_of(work))
    return version


def volume_of(work: Work) -> Volume:
    """Return the volume: the version's own, unless another one is named.

    :raises NotFoundError: when there is none, or it never was the version's.
    """
    version = version_of(work)
    volume_id = str(work.parameters.get("owner") or version.record.disk.owner)
    volume = record_refs.find_volume(work.versions.repository.origin, volume_id)
    if volume is None:
        raise exception.NotFoundError(f"volume {volume_id} does not exist")
    return volume


def _volumes(work: Work) -> RestorableVolumes:
    return RestorableVolumes(work.versions.repository)


def _end_use(work: Work) -> None:
    version_id = version_id_of(work)
    work.fence()
    work.versions.end_use(version_id, use_of(work))
    work.refresh(version_id)
