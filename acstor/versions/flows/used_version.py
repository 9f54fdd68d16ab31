"""Versions that a flow uses: of its project, and restore points."""

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.version_refs import Version
from acstor.versions.flows.work import Work


class NotRestorableError(exception.ConflictError):
    """A version that is only on a host, or deleted."""

    code = "acstor.version.not_committed"
    default_hint = "wait until the version is committed"


def version_id_of(work: Work) -> str:
    """Return the id of the one version that a task is about.

    :raises UnsupportedError: when it is about several.
    """
    one = work.parameters.get("version_id")
    if one is not None:
        return str(one)
    found = [str(each) for each in work.parameters.get("versions", ())]
    if len(found) != 1:
        raise exception.UnsupportedError(
            "several versions at once cannot be put back in place", hint="restore them one by one"
        )
    return found[0]


def find_version(work: Work, version_id: str) -> Version:
    """Return a version of the task's project, in whatever state.

    :raises NotFoundError: when the project has none with that id.
    """
    version = _of_project(work, version_id)
    if version is None:
        raise exception.NotFoundError(f"version {version_id} does not exist")
    return version


def find_record(work: Work, version_id: str) -> VersionRecord | None:
    """Return the record of a version of the task's project, in whatever state."""
    version = _of_project(work, version_id)
    return None if version is None else version.record


def require_restorable(version: Version, use: str) -> None:
    """Refuse a version that is no restore point, unless this use keeps it.

    :raises NotRestorableError: when it is none.
    """
    if not version.record.is_restorable and use not in version.record.uses:
        raise NotRestorableError(f"version {version.id} is {version.record.state.value}")


def _of_project(work: Work, version_id: str) -> Version | None:
    version = version_refs.find_version(work.versions.repository.origin, version_id)
    return version if version is not None and version.record.project == work.task.project else None
