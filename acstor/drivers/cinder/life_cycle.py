"""Volumes come, grow and go: nothing of it copies content."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from cinder import exception as cinder_exception
from cinder import objects

from acstor import exception
from acstor.drivers.cinder import encryption
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.feature import (
    GIB,
    NO_SHARED_TARGET,
    Feature,
    disk_of,
    durability_of,
    metadata_of,
)
from acstor.drivers.cinder.locks import one_at_a_time
from acstor.drivers.cinder.present_state import with_present_state
from acstor.repository.volumes.store import NewVolume, PushedState

LOG = logging.getLogger(__name__)

Result = TypeVar("Result")


class LifeCycle(Feature):
    """Creating, cloning, growing and deleting volumes."""

    @reported("creating volume {volume.id}")
    def create_volume(self, volume: Any) -> None:
        """Make an empty volume; of an encrypted one, the header."""
        source = _copied_from(volume)
        if source is not None:
            encryption.refuse_copy(source, volume)
        if volume.encryption_key_id is None:
            self.make_disk(volume, volume.size * GIB, self.back_end.volumes.create)
            return
        with self.back_end.temporary_file() as path:
            encryption.create_formatted(
                volume.obj_context, volume, path, self.back_end.directory(), self._run
            )
            self.store_file(volume, path)

    @reported("cloning volume {src_vref.id} as {volume.id}")
    def create_cloned_volume(self, volume: Any, src_vref: Any) -> dict[str, Any]:
        """Make a volume with the present content of another one.

        :returns: what to change in Cinder's record.
        """
        source = disk_of(src_vref)
        self.with_present_state(source, lambda pushed: self.make_clone(volume, source, pushed))
        return {**NO_SHARED_TARGET}

    @reported("creating volume {volume.id} from snapshot {snapshot.id}")
    def create_volume_from_snapshot(self, volume: Any, snapshot: Any) -> dict[str, Any]:
        """Make a volume with the content of a snapshot.

        :returns: what to change in Cinder's record.
        """
        volumes, source = self.back_end.volumes, str(snapshot.id)
        self.make_disk(
            volume,
            size_of_copy(volume, volumes.get_snapshot(source).record.size_bytes),
            lambda new: volumes.create_from_snapshot(new, source),
        )
        return {**NO_SHARED_TARGET}

    @reported("deleting volume {volume.id}")
    @one_at_a_time("{volume.name_id}")
    def delete_volume(self, volume: Any) -> None:
        """Delete a volume; one that is not there is no error.

        :raises VolumeIsBusy: while it is attached.
        """
        disk = disk_of(volume)
        found = self.back_end.volumes.find(disk)
        if found is None:
            LOG.warning("volume %s is not in the repository: nothing to delete", disk)
            return
        if found.record.hosts:
            LOG.error("volume %s may be open on %s", disk, ", ".join(found.record.hosts))
            raise cinder_exception.VolumeIsBusy(volume_name=volume.name)
        # An owner that no attachment stands for any more is one that was lost.
        self.back_end.volumes.delete(disk, force=True)

    @reported("extending volume {volume.id} to {new_size} GiB")
    @one_at_a_time("{volume.name_id}")
    def extend_volume(self, volume: Any, new_size: int) -> None:
        """Make a volume larger, in use or not."""
        disk, volumes = disk_of(volume), self.back_end.volumes
        record = volumes.get(disk).record
        size_bytes = int(new_size) * GIB
        if volume.encryption_key_id is not None:
            size_bytes += encryption.header_bytes(record.size_bytes)
            if record.hosts:
                raise exception.UnsupportedError(
                    f"volume {disk} is encrypted and attached: Nova cannot resize such a disk",
                    hint="detach it, extend it, attach it again",
                )
        # The record first: a host that opens the volume from now on finds the new size.
        owner = volumes.resize(disk, size_bytes).after.owner
        if owner is not None:
            self.tell_owner(owner, "volume_resize", disk, size_bytes=size_bytes)

    def with_present_state(
        self, disk: str, action: Callable[[PushedState | None], Result]
    ) -> Result:
        """Do something with the content of a volume as it is now."""
        timeout = self.configuration.safe_get("acstor_push_timeout")
        return with_present_state(self.back_end, disk, timeout, action)

    def tell_owner(self, owner: str, method: str, disk: str, **arguments: Any) -> None:
        """Have the host that has a volume open do something that its record says already.

        A host that does not have it open finds it in the record when it opens it.

        :raises UnavailableError: when the host does not answer.
        """
        with contextlib.suppress(exception.NotFoundError):
            self.back_end.hosts.call(owner, method, volume=disk, **arguments)

    def make_clone(self, volume: Any, source: str, pushed: PushedState | None) -> None:
        """Make a volume with the content of another one, at least as large as Cinder says."""
        volumes = self.back_end.volumes
        size_bytes = pushed.size_bytes if pushed else volumes.get(source).record.size_bytes
        self.make_disk(
            volume,
            size_of_copy(volume, size_bytes),
            lambda new: volumes.clone(new, source, pushed),
        )

    def store_file(self, volume: Any, path: str) -> None:
        """Make a volume of a raw file; one that is there already, and not in use, is replaced.

        :raises ConflictError: when it is in use.
        """
        volumes, disk = self.back_end.volumes, disk_of(volume)
        size_bytes, scope = file_size_of(volume, path), self.dedup_scope_of(volume)

        def publish(manifest: str) -> None:
            with contextlib.suppress(exception.NotFoundError):
                volumes.delete(disk)
            volumes.create_from_manifest(new_volume(volume, size_bytes, scope), manifest)

        self.back_end.importer.store(path, publish, scope)

    def make_disk(
        self, volume: Any, size_bytes: int, create: Callable[[NewVolume], object]
    ) -> None:
        """Make a volume; one that an attempt before left and no host ever opened is replaced.

        :raises ConflictError: when there is such a volume.
        """
        disk, volumes = disk_of(volume), self.back_end.volumes
        left = volumes.find(disk)
        if left is not None and left.record.epoch == 0 and not left.record.hosts:
            LOG.warning("volume %s was left by an attempt before, making it anew", disk)
            volumes.delete(disk)
        create(new_volume(volume, size_bytes, self.dedup_scope_of(volume)))

    def _run(self, *command: Any) -> Any:
        return self._execute(*command)  # type: ignore[attr-defined] # Cinder's BaseVD has it


def _copied_from(volume: Any) -> Any | None:
    """Return the volume that Cinder is about to copy into a new one, None when it is not."""
    prefix, target, source = str(volume.migration_status or "").partition("target:")
    if prefix or not target:
        return None
    return objects.Volume.get_by_id(volume.obj_context, source)


def new_volume(volume: Any, size_bytes: int, dedup_scope: str | None) -> NewVolume:
    """Return what a volume is to be, by its type.

    :raises InvalidError: naming the extra spec that is wrong.
    """
    name = str(volume.display_name or "")[:255]
    return NewVolume(
        disk_of(volume),
        size_bytes,
        durability_of(volume.volume_type),
        name if name.isprintable() else "",
        metadata_of(volume, volume.volume_type),
        dedup_scope,
    )


def size_of_copy(volume: Any, source_bytes: int) -> int:
    """Return the size of a volume with the content of another disk, bytes."""
    size_bytes = int(volume.size) * GIB
    if volume.encryption_key_id is not None:
        size_bytes += encryption.header_bytes(source_bytes)
    return max(size_bytes, source_bytes)


def file_size_of(volume: Any, path: str) -> int:
    """Return the size of a volume that is made of a file, bytes.

    Cinder counts what the guest sees: an encrypted volume is larger by its header.
    """
    header = encryption.header_of(path) if volume.encryption_key_id is not None else 0
    return int(volume.size) * GIB + header
