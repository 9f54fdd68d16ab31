"""Content of files of a version: of one file, or of a directory as an archive."""

import contextlib
import dataclasses

from acstor import exception, native
from acstor.api import ranges, version_browsing
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.resources.version_tree import partition_of
from acstor.api.schemas import files as schemas
from acstor.api.schemas import versions as version_schemas
from acstor.api.validation import BYTES, MEDIA_BYTES
from acstor.api.version_browsing import FileStream
from acstor.browsing.disk_files import DiskFiles, FileKind
from acstor.repository.versions.version_refs import Version


class VersionFileContent(BackedResource):
    """Content of a file: ``/v1/versions/<id>/files/content``."""

    @operation(
        "versions:file_content",
        "Show length and name of the content of a file of a version",
        {200: None},
        query=schemas.CONTENT_QUERY,
    )
    def on_head(self, call: Call) -> Answer:
        """Answer the headers."""
        version = versions.restorable(self._backends, call, call.path["version_id"])
        with version_browsing.looked_into(self._backends.files, version) as files:
            file = _RegularFile.of(call, version, files)
        return Answer(headers=ranges.headers(file.size_bytes, file.etag))

    @operation(
        "versions:file_content",
        "Download a file of a version",
        {200: BYTES, 206: BYTES},
        query=schemas.CONTENT_QUERY,
        headers=version_schemas.DATA_HEADERS,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer the bytes, or those of the range that is asked for."""
        version = versions.restorable(self._backends, call, call.path["version_id"])
        opened = version_browsing.sent(self._backends.files, version)
        with contextlib.ExitStack() as stack:
            stack.callback(opened.close)
            file = _RegularFile.of(call, version, opened.files)
            wanted = ranges.range_of(call.request, file.size_bytes, file.etag)
            start, end = wanted or (0, file.size_bytes)
            content = opened.files.content(file.partition, file.path, start, end - start)
            stream = FileStream(opened, content)
            stack.pop_all()
        return ranges.answer(wanted, file.size_bytes, file.etag, stream)


@dataclasses.dataclass(frozen=True, slots=True)
class _RegularFile:
    """Regular file that a call names."""

    partition: int
    path: str
    size_bytes: int
    etag: str
    """Name of its content, which never changes, with quotes."""

    @classmethod
    def of(cls, call: Call, version: Version, files: DiskFiles) -> "_RegularFile":
        """Return the file.

        :raises InvalidError: when it is of another kind.
        """
        number, path = partition_of(call, files), call.query["path"]
        file = files.entry(number, path)
        if file.kind is not FileKind.FILE:
            raise exception.InvalidError(
                f"{path} is no regular file but of kind {file.kind.value}",
                hint="a directory comes as an archive, a link names what to ask for",
            )
        name = native.digest(f"{version.id} {number} {path}".encode()).hex()
        return cls(number, path, file.size_bytes, f'"{name}"')


class VersionArchive(BackedResource):
    """Directory with all below it: ``/v1/versions/<id>/files/archive``."""

    @operation(
        "versions:file_archive",
        "Download a directory of a version as a tar archive",
        {200: BYTES},
        query=schemas.CONTENT_QUERY,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer the archive, whose length is not known before."""
        version = versions.restorable(self._backends, call, call.path["version_id"])
        opened = version_browsing.sent(self._backends.files, version)
        with contextlib.ExitStack() as stack:
            stack.callback(opened.close)
            number = partition_of(call, opened.files)
            content = opened.files.archive(number, call.query["path"], version.record.size_bytes)
            stream = FileStream(opened, content)
            stack.pop_all()
        headers = {"Cache-Control": "private, no-store", "Content-Type": MEDIA_BYTES}
        return Answer(headers=headers, stream=stream)
