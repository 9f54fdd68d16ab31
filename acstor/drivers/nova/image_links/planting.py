"""Planting, moving and removing one link: what is there is looked at, changed under Nova's lock.

Any of these may be killed anywhere: each step leaves something that Nova can use and that the next
look completes.
"""

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace

from acstor.drivers.nova.image_links import nova_lock
from acstor.drivers.nova.image_links.base_names import base_name, image_of_link, target_path
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.link_states import LinkEvent
from acstor.drivers.nova.image_links.local_directory import is_whole, local_path
from acstor.drivers.nova.image_links.nova_directories import NovaDirectories
from acstor.drivers.nova.image_links.nova_settings import NovaSettings

TO_LOCAL_FILE = "leads to a local file"


@dataclass(frozen=True)
class Outcome:
    """Result for one link: the observation or action at its place, with the reason."""

    event: LinkEvent
    reason: str = ""
    """For people; one line."""
    is_local: bool = False
    """True if the link leads to the image's local file."""


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

        Nothing in the mount is looked at: a data plane that hangs would hang this process.
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
        if target == self._local_path(image_id):
            if is_whole(self._settings.base_directory, image_id):
                return Outcome(LinkEvent.PLANT, TO_LOCAL_FILE, is_local=True)
            return Outcome(LinkEvent.PLANT, "its local file is gone", is_local=True)
        if target == target_path(self._mount_point, image_id):
            return Outcome(LinkEvent.PLANT)
        if image_of_link(base_name(image_id), target) == image_id:
            reason = f"a link to another mount point than [dataplane] mount_point: {target}"
            return Outcome(LinkEvent.STRANGER_FOUND, reason)
        return Outcome(LinkEvent.STRANGER_FOUND, f"a link of somebody else: {target}")

    def plant(self, image_id: str, *, to_local: bool = False) -> Outcome:
        """Plant a link where nothing is, and give it the owner that Nova's file would have.

        A link of ours that leads elsewhere is moved: it is replaced as a whole, so that Nova finds
        one of the two at any moment.

        :param to_local: whether it is to lead to the local file, where that is there.
        :raises OSError: when it cannot be made.
        """
        to_local = to_local and is_whole(self._settings.base_directory, image_id)
        found = self.found(image_id)
        is_there = found is not None and found.event is LinkEvent.PLANT
        if found is None or (is_there and found.is_local is not to_local):
            try:
                with nova_lock.held(self._settings, self._directories, base_name(image_id)):
                    found = self._plant_locked(image_id, to_local=to_local)
            except nova_lock.LockBusyError:
                if found is not None:
                    return replace(found, reason="Nova holds its lock: moved later")
                return Outcome(LinkEvent.LOCKED, "Nova holds its lock: tried again")
        if found.event is LinkEvent.PLANT:
            owner = os.stat(self._settings.base_directory)
            self._directories.give(self.path(image_id), owner)
        return found

    def _plant_locked(self, image_id: str, *, to_local: bool) -> Outcome:
        target = self._local_path(image_id) if to_local else self._mounted_path(image_id)
        there = self._target(image_id)
        if there in self._own_targets(image_id):
            if there != target:
                self._move(image_id, target)
            return self.found(image_id) or Outcome(LinkEvent.LOCKED, "Nova was quicker")
        try:
            self._files.symlink(target, self.path(image_id))
        except FileExistsError:
            # Nova was quicker (it does not always take the lock: cache_image), or its file came
            # while the lock was waited for.
            return self.found(image_id) or Outcome(LinkEvent.LOCKED, "Nova was quicker")
        return Outcome(LinkEvent.PLANT, TO_LOCAL_FILE if to_local else "", is_local=to_local)

    def _move(self, image_id: str, target: str) -> None:
        """Put another link in the place of one of ours; a killed run leaves one or the other."""
        temporary = self._directories.temporary_link(base_name(image_id))
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(temporary)
        self._files.symlink(target, temporary)
        self._directories.give(temporary, os.stat(self._settings.base_directory))
        self._files.rename(temporary, self.path(image_id))

    def _mounted_path(self, image_id: str) -> str:
        return target_path(self._mount_point, image_id)

    def _local_path(self, image_id: str) -> str:
        return local_path(self._settings.base_directory, image_id)

    def _own_targets(self, image_id: str) -> tuple[str, str]:
        return self._mounted_path(image_id), self._local_path(image_id)

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
            return target in self._own_targets(image_id) or (
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
        return frozenset(self._planted())

    def local_images(self) -> frozenset[str]:
        """Return the ids of the images whose link leads to their local file.

        :raises OSError: when the directory cannot be read.
        """
        return frozenset(
            image_id
            for image_id, target in self._planted().items()
            if target == self._local_path(image_id)
        )

    def _planted(self) -> dict[str, str]:
        """Return the targets of ACStor's links by image."""
        found = {}
        try:
            with os.scandir(self._settings.base_directory) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        target = os.readlink(entry.path)
                        image_id = image_of_link(entry.name, target)
                        if image_id is not None:
                            found[image_id] = target
        except FileNotFoundError:
            pass
        return found
