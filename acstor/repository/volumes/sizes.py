"""Manifests of volumes, by the version of the repository."""

from acstor.repository.volumes.record_refs import RecordRefs


class RecordSizes(RecordRefs):
    """The sizes of volumes in one repository."""

    def makes_paged(self) -> bool:
        """Return whether the first manifest of a volume is to be of version 2.

        :raises UnavailableError: when the origin does not answer.
        """
        return self._repository.current_format().has_compressed_images
