"""Disk of a version as an image file: all of it, or the part that is missing yet."""

from acstor.api import ranges
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import versions as schemas
from acstor.api.validation import BYTES
from acstor.api.version_files import Download
from acstor.repository.reading.image_files import ImageFormat


class VersionData(BackedResource):
    """Disk: ``/v1/versions/<id>/data``.

    Source: RFC 9110, ``Range`` and ``If-Range``, of one range.
    """

    @operation(
        "versions:data",
        "Show length and name of the image file of a version's disk",
        {200: None},
        query=schemas.DATA_QUERY,
    )
    def on_head(self, call: Call) -> Answer:
        """Answer the headers."""
        version = versions.restorable(self._backends, call, call.path["version_id"])
        size_bytes, etag = self._backends.files.about(version, _format(call))
        return Answer(headers=ranges.headers(size_bytes, etag))

    @operation(
        "versions:data",
        "Download the disk of a version as an image file",
        {200: BYTES, 206: BYTES},
        query=schemas.DATA_QUERY,
        headers=schemas.DATA_HEADERS,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer the bytes, or those of the range that is asked for."""
        version = versions.restorable(self._backends, call, call.path["version_id"])
        download = self._backends.files.download(version, _format(call))
        try:
            return _answer(call, download)
        except BaseException:
            download.close()
            raise


def _answer(call: Call, download: Download) -> Answer:
    wanted = ranges.range_of(call.request, download.size_bytes, download.etag)
    start, end = wanted or (0, download.size_bytes)
    download.begin(start, end)
    return ranges.answer(wanted, download.size_bytes, download.etag, download)


def _format(call: Call) -> ImageFormat:
    return ImageFormat(call.query.get("format", ImageFormat.QCOW2))
