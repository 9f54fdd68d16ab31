"""Sizes that volumes may have: those that the manifests of their folds describe.

A volume has manifests of one version from its first fold on: of version 2 where the repository
makes them then, or where it is over an image that has one.
"""

from acstor import exception
from acstor.repository import disk_manifest, layout
from acstor.repository.volumes import record as records
from acstor.repository.volumes.record_refs import RecordRefs

_WHOLE_VERSION = 1
_CHUNKS_MAX = {
    _WHOLE_VERSION: layout.CHUNKS_MAX,
    disk_manifest.PAGED_VERSION: layout.PAGED_CHUNKS_MAX,
}
"""Most chunks of a disk, by version of its manifests."""
_FRONT_SIZE = 12
"""Bytes of a manifest that say its version."""


class RecordSizes(RecordRefs):
    """The sizes of volumes in one repository."""

    def makes_paged(self) -> bool:
        """Return whether the first manifest of a volume is to be of version 2.

        :raises UnavailableError: when the origin does not answer.
        """
        return self._repository.current_format().has_compressed_images

    def check_size(self, size_bytes: int, manifest: str | None = None) -> None:
        """Refuse what is no size of a volume in this repository.

        :param manifest: that its next fold is over; None: there is none.
        :raises InvalidError: unless it is a positive multiple of 512 that manifests of the
            volume's version describe.
        :raises NotFoundError: when there is no such manifest.
        """
        try:
            records.check_size(size_bytes)
        except ValueError as error:
            raise exception.InvalidError(f"{error}") from error
        whole_max = self._size_max(_WHOLE_VERSION)
        paged_max = self._size_max(disk_manifest.PAGED_VERSION)
        if size_bytes <= whole_max:
            return
        if not self.makes_paged():
            raise self._too_large(
                size_bytes,
                _WHOLE_VERSION,
                "when every machine runs this release: 'acstor repository upgrade' to version 6, "
                f"where a volume has at most {paged_max} bytes",
            )
        if size_bytes > paged_max:
            raise self._too_large(
                size_bytes, disk_manifest.PAGED_VERSION, "make several volumes instead"
            )
        if manifest is not None and not self._is_paged(manifest):
            raise self._too_large(
                size_bytes,
                _WHOLE_VERSION,
                "copy its content to a new volume, which has manifests of version 2",
            )

    def _is_paged(self, manifest: str) -> bool:
        front = self._origin.get_range(layout.manifest_key(manifest), 0, _FRONT_SIZE)
        return disk_manifest.is_paged(front)

    def _size_max(self, version: int) -> int:
        return min(layout.DISK_SIZE_MAX, _CHUNKS_MAX[version] * self._repository.chunk_size)

    def _too_large(self, size_bytes: int, version: int, hint: str) -> exception.InvalidError:
        return exception.InvalidError(
            f"a volume of {size_bytes} bytes is larger than a manifest of version {version} "
            f"describes in chunks of {self._repository.chunk_size} bytes, "
            f"{self._size_max(version)} at most",
            hint=hint,
        )
