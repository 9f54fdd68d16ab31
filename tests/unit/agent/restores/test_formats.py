"""Format of the record of a restore, against its golden file."""

import dataclasses
import pathlib
import uuid

import pytest

from acstor import exception
from acstor.agent.restores import table
from acstor.agent.restores.table import RestoreRecord
from acstor.agent.restores.writing import Written
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_restore.request import RestoredDisk, RestoreRequest
from acstor.versions.host_restore.states import RestoreState

GOLDEN = pathlib.Path(__file__).parents[3] / "golden"
TASK, SERVER, VERSION, IMAGE, OTHER = (str(uuid.UUID(int=number)) for number in range(1, 6))
RECORD = RestoreRecord(
    RestoreRequest(TASK, SERVER, "vda", VERSION, "a project", IMAGE, 60.0),
    3,
    RestoreState.TORN,
    is_torn=True,
    written=Written(1, 2, 3, 4),
    failure=Failure(exception.ErrorKind.UNAVAILABLE, "the origin is away", "look at it"),
)
OF_SET = dataclasses.replace(
    RECORD,
    request=dataclasses.replace(
        RECORD.request, further=(RestoredDisk("vdb", OTHER),), nvram=VERSION
    ),
)


def test_record_requires_update() -> None:
    assert table.RECORD_VERSION == 2
    golden = (GOLDEN / "restore-record-v2.json").read_bytes()
    assert OF_SET.encode() == golden
    assert RestoreRecord.parse(golden, "a record") == OF_SET


def test_record_of_the_release_before_is_read() -> None:
    golden = (GOLDEN / "restore-record-v1.json").read_bytes()
    found = RestoreRecord.parse(golden, "a record")
    assert found == RECORD
    assert RestoreRecord.parse(found.encode(), "a record") == RECORD


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 2, "request": {}}']
)
def test_malformed_records_are_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        RestoreRecord.parse(content, "a record")


def test_record_of_a_newer_release_is_refused() -> None:
    content = RECORD.encode().replace(b'"version": 2,', b'"version": 3,')
    content = content.replace(b'"version": 2}', b'"version": 3}')
    with pytest.raises(exception.UnsupportedError):
        RestoreRecord.parse(content, "a record")
