"""Signing the record of an image whose file a child process has read.

The child reads files of projects, so it never has the key: it says the record, and the registrar
signs it for the image that was ordered, and for that one only.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.registrar.registration.file_registration import ImageFile
from acstor.repository.images.image_record import NAME_LENGTH_MAX, ImageRecord
from acstor.repository.images.record_writer import RecordWriter
from acstor.repository.repository import Repository

WRITTEN_MAX = 16
"""Records that one registration may ask for: more than it has rounds."""


class ChildRecords(RecordWriter):
    """Writer of a child: the registrar writes the record.

    :param ask: says a record's fields, and returns the content of its ref.
    :param is_current: whether what the ref holds need not be written anew.
    """

    def __init__(self, ask: Callable[[dict[str, Any]], bytes], *, is_current: bool) -> None:
        self._ask = ask
        self._is_current = is_current

    def encode(
        self, repository: Repository, image_id: str, record: ImageRecord, present: bytes | None
    ) -> bytes:
        """Return the content of a ref; the registrar looks itself at what it holds now."""
        return self._ask(dataclasses.asdict(record))

    def is_current(self, repository: Repository, image_id: str, present: bytes) -> bool:
        """Return what the registrar found when it ordered the registration."""
        return self._is_current


class OrderedRecord:
    """Writes the record of one ordered registration.

    :param file: what was ordered.
    """

    def __init__(self, writer: RecordWriter, repository: Repository, file: ImageFile) -> None:
        self._writer = writer
        self._repository = repository
        self._file = file
        self._written = 0

    def is_current(self) -> bool:
        """Return whether the image is registered, and its record need not be written anew.

        :raises CorruptError: when the record there is malformed.
        """
        image = self._repository.find_image(self._file.image_id)
        return image is not None and self._writer.is_current(
            self._repository, image.id, image.content
        )

    def write(self, fields: dict[str, Any]) -> bytes:
        """Return the content of the image's ref that says what the child says.

        :raises ValueError: when that is no record of what was ordered.
        :raises AcstorError: when it cannot be written.
        """
        self._written += 1
        if self._written > WRITTEN_MAX:
            raise ValueError("more records than it has rounds")
        try:
            record = ImageRecord.of_fields(fields, self._file.image_id)
        except exception.CorruptError as error:
            raise ValueError(str(error)) from error
        image = self._repository.find_image(self._file.image_id)
        scope = image.record.dedup_scope if image else self._file.dedup_scope
        ordered = dataclasses.replace(
            record,
            name=self._file.name[:NAME_LENGTH_MAX],
            source_format=self._file.disk_format,
            checksum=self._file.checksum,
            chunk_size=self._repository.chunk_size,
            dedup_scope=scope,
        )
        if record != ordered:
            raise ValueError("the record is of something else than was ordered")
        return self._writer.encode(
            self._repository, self._file.image_id, record, image.content if image else None
        )
