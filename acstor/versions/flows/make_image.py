"""The image that servers boot a version from: made once, and found again by whoever asks next.

It has bytes of its own, as an export: stock Glance and Nova serve it wherever ACStor is down, and
the registrar takes it as any other image, whose chunks the repository has already. Differs from
CloudVS, whose versions boot without one: the content goes through Glance once for each version.
"""

from typing import Any

from acstor.repository.versions.version_refs import Version
from acstor.versions.flows import export_version
from acstor.versions.flows.export_version import Check, Finish, version_of
from acstor.versions.flows.step import Step
from acstor.versions.flows.used_version import version_id_of
from acstor.versions.flows.work import Work
from acstor.versions.moved_bytes import IMAGE_USE
from acstor.versions.services.image_store import ACTIVE

USE = IMAGE_USE
"""Beginning of the uses of images, which the image's id ends: while it is there, the version is."""


class Find(Step):
    """Find the image, where there is one already."""

    step = "find"
    share = 0.02

    def act(self, work: Work) -> dict[str, Any]:
        """Return its id, or None."""
        for image_id in images_of(version_of(work)):
            found = work.services.image_store.find(image_id)
            if found is not None and found.status == ACTIVE:
                return {"image_id": image_id, "size_bytes": found.size_bytes}
        return {"image_id": None, "size_bytes": None}


class Upload(export_version.Upload):
    """Make the image, unless there is one."""

    def act(self, work: Work) -> dict[str, Any]:
        """Return the id of the image, and the length of its content."""
        found: dict[str, Any] = work.result_of(Find.step)
        return found if found["image_id"] is not None else super().act(work)


class Hold(Step):
    """Have the version stay for as long as the image."""

    step = "hold"
    share = 0.96

    def act(self, work: Work) -> dict[str, Any]:
        """Return nothing of interest."""
        version_id, use = _use_of(work)
        work.fence()
        work.versions.begin_use(version_id, use)
        return {}

    def undo(self, work: Work) -> None:
        """Let it go, unless the image was there before."""
        found, made = work.result_of(Find.step), work.result_of(Upload.step)
        if made is not None and found["image_id"] is None:
            version_id, use = _use_of(work)
            work.fence()
            work.versions.end_use(version_id, use)


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Check(), Find(), Upload(), Hold(), Finish()]


def images_of(version: Version) -> list[str]:
    """Return the ids of the images that servers boot a version from."""
    return [use.removeprefix(USE) for use in version.record.uses if use.startswith(USE)]


def _use_of(work: Work) -> tuple[str, str]:
    """Return the version's id, and the use that the image is."""
    image_id = work.result_of(Upload.step)["image_id"]
    return version_id_of(work), f"{USE}{image_id}"
