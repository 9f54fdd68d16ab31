"""Records of images whose files a child reads: signed by the registrar, for what it ordered."""

import dataclasses
import pathlib
import re

import pytest

from acstor import exception
from acstor.origin.posix import PosixOrigin
from acstor.registrar.registration.child_registration import InChild
from acstor.registrar.registration.child_signing import OrderedRecord
from acstor.registrar.registration.file_registration import ImageFile
from acstor.repository import layout
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.record_writer import RecordWriter, SignedRecords
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.repository import Repository
from testbed.doubles.registrar_cloud import CHUNK_SIZE
from tests.unit.registrar.test_child_registration import (
    CONTENT,
    IMAGE_ID,
    MEMORY,
    PROGRAMS,
    register,
)
from tests.unit.repository.signing.keys import private, public, trusted


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    (tmp_path / "origin").mkdir()
    return Repository.init(PosixOrigin(str(tmp_path / "origin")), CHUNK_SIZE)


class Refusing(RecordWriter):
    """Can write none."""

    def encode(
        self, repository: Repository, image_id: str, record: ImageRecord, present: bytes | None
    ) -> bytes:
        raise exception.ExhaustedError("there is no generation", hint="set the clock")

    def is_current(self, repository: Repository, image_id: str, present: bytes) -> bool:
        return False


def signing(folder: pathlib.Path, writer: RecordWriter, *program: str) -> InChild:
    origin = f"posix://{folder / 'origin'}"
    if program:
        return InChild(origin, 10.0, MEMORY, (PROGRAMS, *program), writer=writer)
    return InChild(origin, 10.0, MEMORY, writer=writer)


def records(number: int = 0) -> SignedRecords:
    return SignedRecords(private(number), trusted())


def signer_of(repository: Repository, *numbers: int) -> str | None:
    judge = RecordVerifier(repository.format.id, trusted(*numbers), require_signatures=True)
    return judge.verify(repository.get_image(IMAGE_ID).content, IMAGE_ID).key_id


def test_image_is_registered_with_a_signed_record(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "image"
    path.write_bytes(CONTENT)
    assert register(signing(tmp_path, records()), repository, path).status == "registered"
    assert signer_of(repository, 0) == public(0).id
    again = register(signing(tmp_path, records()), repository, path)
    assert again.status == "already registered"
    rotated = register(signing(tmp_path, records(1)), repository, path)
    assert (rotated.status, signer_of(repository, 1)) == ("signed", public(1).id)


def test_child_gets_no_record_of_something_else_signed(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(exception.InternalError, match="of something else than was ordered"):
        register(signing(tmp_path, records(), "forging"), repository, tmp_path / "image")
    assert repository.origin.get_ref("image-generation") is None


def test_child_cannot_have_generations_used_up(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(exception.InternalError, match="more records than it has rounds"):
        register(signing(tmp_path, records(), "greedy"), repository, tmp_path / "image")


def test_child_without_a_registrar_that_signs_gets_nothing(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    child = InChild(f"posix://{tmp_path / 'origin'}", 10.0, MEMORY, (PROGRAMS, "forging"))
    with pytest.raises(exception.InternalError, match="an unknown message"):
        register(child, repository, tmp_path / "image")


def test_registrar_that_cannot_sign_says_why(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "image"
    path.write_bytes(CONTENT)
    with pytest.raises(exception.ExhaustedError, match=re.escape("no generation")) as caught:
        register(signing(tmp_path, Refusing()), repository, path)
    assert caught.value.hint == "set the clock"
    assert list(repository.list_image_ids()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "x"},
        {"source_format": "qcow2"},
        {"checksum": "md5:" + "0" * 32},
        {"chunk_size": 2 * CHUNK_SIZE},
        {"dedup_scope": "0f9d8c7b6a594837a6b5c4d3e2f10918"},
        {"manifest": "zz"},
        {"size_bytes": -1},
        {"size_bytes": None},
    ],
)
def test_record_is_what_was_ordered(
    repository: Repository,
    tmp_path: pathlib.Path,
    change: dict[str, object],
) -> None:
    path = tmp_path / "image"
    path.write_bytes(CONTENT)
    file = ImageFile(IMAGE_ID, "name", str(path), "raw")
    ordered = OrderedRecord(records(), repository, file)
    digest = "ab" * 32
    record = ImageRecord(digest, digest, "name", 512, CHUNK_SIZE, 1, 1, 0, "raw", "")
    ordered.write(dataclasses.asdict(record))
    with pytest.raises(ValueError, match="record"):
        ordered.write({**dataclasses.asdict(record), **change})
    repository.origin.swap_ref(layout.image_ref(IMAGE_ID), None, record.encode())
    assert not ordered.is_current()
