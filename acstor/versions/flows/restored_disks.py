"""Disks that a restore in place is of, and the versions that are written into them, all or none.

One disk, or disks of one moment: a group of versions, or those of it that a user names. UEFI
variables go with the disk that the server boots from.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from acstor import exception
from acstor.repository.versions.version_refs import Version
from acstor.versions.flows import export_version
from acstor.versions.flows.used_version import find_version, require_restorable, version_id_of
from acstor.versions.flows.work import CancelledError, Work
from acstor.versions.host_restore.request import DISKS_MAX, RestoredDisk, RestoreRequest
from acstor.versions.services.compute import Server


@dataclasses.dataclass(frozen=True, slots=True)
class RestoredDisks:
    """Disks of one server, each with a version."""

    disks: tuple[RestoredDisk, ...]
    """The root disk, where it is among them, is the first."""
    nvram: str | None = None
    """Version whose UEFI variables are written; None: none are."""

    @property
    def first(self) -> str:
        """Version of the first disk, by which the host tells one set from another."""
        return self.disks[0].version

    @property
    def devices(self) -> list[str]:
        """Names of the disks."""
        return [disk.device for disk in self.disks]

    @property
    def versions(self) -> list[str]:
        """Ids of the versions."""
        return [disk.version for disk in self.disks]

    def to_result(self) -> dict[str, Any]:
        """Return the form in which a step's result has it."""
        return {"disks": [disk.to_fields() for disk in self.disks], "nvram": self.nvram}

    @classmethod
    def from_result(cls, result: Any) -> "RestoredDisks":
        """Return the disks of a step's result."""
        disks = tuple(RestoredDisk.from_fields(disk) for disk in result["disks"])
        return cls(disks, result["nvram"])

    def request(self, work: Work, base_image: str | None) -> RestoreRequest:
        """Return the request for the host.

        :param base_image: of the root disk; the host believes it where the disk has it below.
        """
        first, *further = self.disks
        return RestoreRequest(
            task=work.task.id,
            server=str(work.parameters["owner"]),
            device=first.device,
            version=first.version,
            project=work.task.project,
            base_image=base_image,
            further=tuple(further),
            nvram=self.nvram,
        )


def is_named(work: Work) -> bool:
    """Return whether the disks were named, by their group or one by one.

    Else it is about the version of a root disk, and a version of another disk is a mistake.
    """
    wanted = work.parameters
    is_group = bool(wanted.get("group_id")) and len(wanted.get("versions", ())) > 1
    return is_group or bool(wanted.get("disks"))


def wanted_ids(work: Work) -> list[str]:
    """Return the ids of the versions that are restored.

    :raises UnsupportedError: when there are several, and nobody has named disks.
    """
    if is_named(work):
        return [str(each) for each in work.parameters["versions"]]
    return [version_id_of(work)]


def wanted_versions(work: Work) -> list[Version]:
    """Return the versions that are restored, of the task's project.

    :raises NotFoundError: when one does not exist.
    :raises ConflictError: when one is no restore point.
    :raises UnsupportedError: when there are too many.
    """
    ids = wanted_ids(work)
    if not 0 < len(ids) <= DISKS_MAX:
        raise exception.UnsupportedError(
            f"{len(ids)} disks are not restored at once, at most {DISKS_MAX} are",
            hint="name some of them",
        )
    found = [find_version(work, each) for each in ids]
    for version in found:
        require_restorable(version, use_of(work))
    return found


def chosen_disks(work: Work, versions: Iterable[Version], server: Server) -> RestoredDisks:
    """Return the disks of a server that versions are written into.

    :raises ConflictError: when two versions are of the same disk.
    """
    by_device = {version.record.disk.device: version for version in versions}
    if len(by_device) != len(list(versions)):
        raise exception.ConflictError(
            "two of the versions are of the same disk", hint="name each disk once"
        )
    root = server.root_device
    order = sorted(by_device, key=lambda device: (device != root, len(device), device))
    disks = tuple(RestoredDisk(device, by_device[device].id) for device in order)
    # The variables are in the version of the first disk that was captured: the root disk's.
    has_root = root is None or root in by_device
    is_wanted = bool(work.parameters.get("restore_nvram")) and has_root
    nvram = [each.id for each in by_device.values() if each.record.nvram is not None]
    return RestoredDisks(disks, nvram[0] if nvram and is_wanted else None)


def use_of(work: Work) -> str:
    """Return the use by which the task keeps versions."""
    return f"{export_version.RESTORE_USE}{work.task.id}"


def keep(work: Work, versions: Iterable[str]) -> None:
    """Have versions stay until the task has ended."""
    for version_id in versions:
        work.fence()
        if use_of(work) not in work.versions.get(version_id).record.uses:
            work.versions.begin_use(version_id, use_of(work))


def end_uses(work: Work, versions: Iterable[str]) -> None:
    """Let versions go."""
    for version_id in versions:
        work.fence()
        work.versions.end_use(version_id, use_of(work))
        work.refresh(version_id)


def let_go(work: Work, versions: Iterable[str]) -> None:
    """Let versions go at the end; what was done is not undone where that fails.

    :raises CancelledError: when somebody has cancelled the task.
    """
    for version_id in versions:
        try:
            end_uses(work, [version_id])
        except CancelledError:
            raise
        except exception.AcstorError as error:
            # Uses of ended tasks are swept.
            work.note(f"version {version_id} is not let go: {exception.one_line(error)}")
