"""Volumes from images, and images from volumes."""

import logging
from collections.abc import Callable
from typing import Any

from cinder import exception as cinder_exception
from cinder.image import image_utils
from cinder.volume import volume_utils

from acstor import exception
from acstor.drivers.cinder import encryption, local_disk
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.feature import GIB, disk_of
from acstor.drivers.cinder.life_cycle import LifeCycle

LOG = logging.getLogger(__name__)


class Images(LifeCycle):
    """A registered image becomes a volume at once; any other is fetched and stored."""

    @reported("cloning image {image_meta[id]} as volume {volume.id}")
    def clone_image(
        self,
        context: Any,
        volume: Any,
        image_location: Any,
        image_meta: Any,
        image_service: Any,
    ) -> tuple[dict[str, Any], bool]:
        """Make a volume of a registered image: its chunks are the image's.

        :returns: what to change in Cinder's record, and whether the volume was made.
        :raises ImageUnacceptable: when the image is larger than the volume.
        """
        image_id = str(image_meta["id"])
        image = self.back_end.image_to_clone(image_id)
        if image is None:
            LOG.debug("image %s is not registered, it will be copied", image_id)
            return {}, False
        if image.record.size_bytes > volume.size * GIB:
            raise cinder_exception.ImageUnacceptable(
                image_id=image_id,
                reason=f"its disk has {image.record.size_bytes} bytes, more than the "
                f"{volume.size} GiB of the volume",
            )
        volumes = self.back_end.volumes
        manifest = image.record.manifest
        try:
            self.make_disk(
                volume, volume.size * GIB, lambda new: volumes.create_from_manifest(new, manifest)
            )
        except (
            exception.NotFoundError,
            exception.ConflictError,
            exception.UnsupportedError,
        ) as error:
            if volumes.find(disk_of(volume)) is not None:
                raise
            # The image was withdrawn and collected meanwhile, or hosts cannot write over it.
            LOG.warning("image %s will be copied: %s", image_id, error)
            return {}, False
        return {}, True

    @reported("copying image {image_id} to volume {volume.id}")
    def copy_image_to_volume(
        self,
        context: Any,
        volume: Any,
        image_service: Any,
        image_id: str,
        disable_sparse: bool = False,
    ) -> None:
        """Replace the content of a volume by that of an image."""
        self._copy(context, volume, image_service, image_id, disable_sparse)

    @reported("copying image {image_id} to encrypted volume {volume.id}")
    def copy_image_to_encrypted_volume(
        self,
        context: Any,
        volume: Any,
        image_service: Any,
        image_id: str,
        disable_sparse: bool = False,
    ) -> None:
        """Replace the content of a volume by that of an image, encrypted with its key."""

        def encrypt(path: str) -> None:
            encryption.encrypt(context, volume, path, self.back_end.directory())

        self._copy(context, volume, image_service, image_id, disable_sparse, encrypt)

    @reported("copying volume {volume.id} to image {image_meta[id]}")
    def copy_volume_to_image(
        self, context: Any, volume: Any, image_service: Any, image_meta: Any
    ) -> None:
        """Upload the content that a volume has at this moment, whoever uses it.

        It is read through the data plane of this host, from a clone: the volume itself keeps its
        owner.
        """
        source = disk_of(volume)
        disk = self.with_present_state(
            source, lambda pushed: local_disk.make_clone(self.back_end, source, pushed)
        )
        with (
            local_disk.removed_afterwards(self.back_end, disk),
            local_disk.opened(self.back_end, disk) as file,
        ):
            if _is_plain(image_meta):
                volume_utils.upload_volume(
                    context, image_service, image_meta, None, volume, volume_fd=file
                )
                return
            with self.back_end.temporary_file() as path:
                self._run("qemu-img", "convert", "-f", "raw", "-O", "raw", file.uri, path)
                volume_utils.upload_volume(context, image_service, image_meta, path, volume)

    def _copy(
        self,
        context: Any,
        volume: Any,
        image_service: Any,
        image_id: str,
        disable_sparse: bool,
        transform: Callable[[str], None] = lambda path: None,
    ) -> None:
        with self.back_end.temporary_file() as path:
            image_utils.fetch_to_raw(
                context,
                image_service,
                image_id,
                path,
                self.configuration.volume_dd_blocksize,
                size=volume.size,
                disable_sparse=disable_sparse,
            )
            transform(path)
            self.store_file(volume, path)


def _is_plain(image_meta: Any) -> bool:
    """Return whether an image is the bytes of the disk and nothing else."""
    if image_meta.get("container_format") == "compressed":
        return False
    return bool(image_meta["disk_format"] == "raw")
