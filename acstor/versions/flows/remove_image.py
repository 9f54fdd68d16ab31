"""Removing the image that servers boot a version from.

An image that a server is of stays: Nova needs it to rebuild or resize the server, or to bring it to
another host.
"""

import functools
from typing import Any

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.version_refs import Version
from acstor.versions.flows.export_version import RESTORE_USE
from acstor.versions.flows.make_image import USE, images_of
from acstor.versions.flows.patience import patiently
from acstor.versions.flows.step import Step
from acstor.versions.flows.work import Work


class Remove(Step):
    """Delete the image, and let the version go. Nobody can take that back."""

    step = "remove"
    share = 0.2

    def act(self, work: Work) -> dict[str, Any]:
        """Return the ids of the images that were there."""
        version_id = str(work.parameters["version_id"])
        version = version_refs.find_version(work.versions.repository.origin, version_id)
        if version is None and work.epoch > 1:
            # Its last use was ended by a worker that died after it.
            return {"images": []}
        if version is None or version.record.project != work.task.project:
            raise exception.NotFoundError(f"version {version_id} does not exist")
        removed = images_of(version)
        _refuse_used(work, version, removed)
        for image_id in removed:
            work.fence()
            work.services.image_store.delete(image_id)
            work.versions.end_use(version_id, f"{USE}{image_id}")
        return {"images": removed}


class _ImageUsedError(exception.ConflictError):
    """An image that servers are of, or that a restore is about to use."""

    code = "acstor.version.image_in_use"


def _refuse_used(work: Work, version: Version, images: list[str]) -> None:
    """Refuse the removal of an image that servers need.

    :raises ConflictError: when one is, or a restore may be about to use it.
    """
    if any(use.startswith(RESTORE_USE) for use in version.record.uses):
        raise _ImageUsedError(
            f"version {version.id} is being restored", hint="wait until the restore has ended"
        )
    for image_id in images:
        used = functools.partial(work.services.compute.is_image_used, image_id)
        if patiently(work, used):
            raise _ImageUsedError(
                f"servers are of image {image_id} of version {version.id}",
                hint="Nova needs it for as long as they live: openstack server list --image "
                f"{image_id}",
            )


class Finish(Step):
    """Have the lists show it."""

    step = "finish"
    share = 0.9

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        version_id = str(work.parameters["version_id"])
        work.refresh(version_id)
        return {"version_id": version_id, **work.result_of(Remove.step)}


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Remove(), Finish()]
