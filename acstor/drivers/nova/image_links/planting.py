"""Planting and removing one link: what is there is looked at, and changed under Nova's lock.

Any of these may be killed anywhere: each step leaves something that Nova can use and that the next
look completes.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from acstor.drivers.nova.image_links import nova_lock
from acstor.drivers.nova.image_links.base_names import base_name, image_of_link, target_path
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.link_states import LinkEvent
from acstor.drivers.nova.image_links.nova_directories import NovaDirectories
from acstor.drivers.nova.image_links.nova_settings import NovaSettings


@dataclass(frozen=True)
class Outcome:
    """Result for one link: the observation or action at its place, with the reason."""

    event: LinkEvent
    reason: str = ""
    """For people; one line."""


class Planter:
    """Plants and removes links of the images of one data plane.

    :param mount_point: of the data plane.
    :param host: name of this host.
    """

    def __init__(
        self, settings: NovaSettings, mount_point: str, host: str, files: FileOperations
    ) -> None:
        self._settings = settings
        self._mount_point = mount_point
        self._files = files
        self._directories = NovaDirectories(settings, host, files)

    def prepare(self) -> None:
        """Make Nova's directories where they are missing; errors as those of making them."""
        self._directories.prepare()

    def path(self, image_id: str) -> str:
        """Return the path of an image's link."""
        return self._settings.base_path(base_name(image_id))

    def found(self, image_id: str) -> Outcome | None:
        """Return what is at the place of an image's link; None: nothing.

        The link's target is never looked at: a data plane that hangs would hang this process.
        """
        path = self.path(image_id)
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                return Outcome(LinkEvent.FILE_FOUND, "Nova has downloaded it itself")
            if not stat.S_ISLNK(status.st_mode):
                return Outcome(LinkEvent.STRANGER_FOUND, "neither a file nor a link")
            target = os.readlink(path)
        except FileNotFoundError:
            return None
        if target == target_path(self._mount_point, image_id):
            return Outcome(LinkEvent.PLANT)
        if image_of_link(base_name(image_id), target) == image_id:
            reason = f"a link to another mount point than [dataplane] mount_point: {target}"
            return Outcome(LinkEvent.STRANGER_FOUND, reason)
        return Outcome(LinkEvent.STRANGER_FOUND, f"a link of somebody else: {target}")

    def plant(self, image_id: str) -> Outcome:
        """Plant a link where nothing is, and give it the owner that Nova's file would have.

        :raises OSError: when it cannot be made.
        """
        found = self.found(image_id)
        if found is None:
            try:
                with nova_lock.held(self._settings, self._directories, base_name(image_id)):
                    found = self._plant_locked(image_id)
            except nova_lock.LockBusyError:
                return Outcome(LinkEvent.LOCKED, "Nova holds its lock: tried again")
        if found.event is LinkEvent.PLANT:
            owner = os.stat(self._settings.base_directory)
            self._directories.give(self.path(image_id), owner)
        return found

    def _plant_locked(self, image_id: str) -> Outcome:
        try:
            self._files.symlink(target_path(self._mount_point, image_id), self.path(image_id))
        except FileExistsError:
            # Nova was quicker (it does not always take the lock: cache_image), or its file came
            # while the lock was waited for.
            return self.found(image_id) or Outcome(LinkEvent.LOCKED, "Nova was quicker")
        return Outcome(LinkEvent.PLANT)

    def remove(
        self,
        image_id: str,
        why_kept: Callable[[], str | None],
        *,
        of_any_mount: bool = False,
    ) -> Outcome:
        """Remove the link of an image, if it is ours.

        :param why_kept: asked while Nova can make no overlay; returns why the link must stay.
        :param of_any_mount: whether a link to another mount point, made before that was changed
            or by another host that shares instances_path, is ours too.
        :raises OSError: when it cannot be removed.
        """

        def is_ours() -> bool:
            target = self._target(image_id)
            return target == target_path(self._mount_point, image_id) or (
                of_any_mount
                and target is not None
                and image_of_link(base_name(image_id), target) == image_id
            )

        if not is_ours():
            return self._without_link(image_id)
        try:
            with nova_lock.held(self._settings, self._directories, base_name(image_id)):
                reason = why_kept()
                if reason is not None:
                    return Outcome(LinkEvent.KEEP, reason)
                if is_ours():
                    self._files.unlink(self.path(image_id))
        except nova_lock.LockBusyError:
            return Outcome(LinkEvent.LOCKED, "Nova holds its lock: tried again")
        return self._without_link(image_id)

    def _without_link(self, image_id: str) -> Outcome:
        found = self.found(image_id)
        return found or Outcome(LinkEvent.REMOVE)

    def _target(self, image_id: str) -> str | None:
        try:
            return os.readlink(self.path(image_id))
        except OSError:  # nothing, or no link
            return None

    def planted_images(self) -> frozenset[str]:
        """Return the ids of the images that have a link of ACStor's, wherever it leads.

        :raises OSError: when the directory cannot be read.
        """
        found = set()
        try:
            with os.scandir(self._settings.base_directory) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        image_id = image_of_link(entry.name, os.readlink(entry.path))
                        if image_id is not None:
                            found.add(image_id)
        except FileNotFoundError:
            pass
        return frozenset(found)
