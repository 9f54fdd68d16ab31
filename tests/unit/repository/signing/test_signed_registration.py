"""Registrations with a key: signed once, and anew where what is there is not believed."""

import dataclasses

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.images import registration
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.record_writer import RecordWriter, SignedRecords, UnsignedRecords
from acstor.repository.images.signed_record import RecordVerifier, VerifiedRecord
from acstor.repository.repository import Repository
from acstor.repository.signing.signed_document import RefusalReason, UnverifiedError
from tests.unit.repository.images import (
    SETTINGS,
    disk,
    image_id,
    open_repository,
    read_back,
    register,
)
from tests.unit.repository.memory_source import MemorySource
from tests.unit.repository.signing.keys import private, public, trusted

IMAGE = image_id(0)
NAME = layout.image_ref(IMAGE)
CONTENT = disk(1, 2, 0, 3)


@pytest.fixture
def repository() -> Repository:
    return open_repository(MemoryOrigin())


def writer(number: int = 0, *trusting: int) -> SignedRecords:
    return SignedRecords(private(number), trusted(*trusting))


def enter(
    repository: Repository, records: RecordWriter, content: bytes = CONTENT
) -> registration.Report:
    request = registration.Request(IMAGE, "image 0", MemorySource(content), "raw")
    return registration.Registrar(repository, SETTINGS, writer=records).register(request)


def verified(repository: Repository, *numbers: int) -> VerifiedRecord:
    image = repository.get_image(IMAGE)
    judge = RecordVerifier(repository.format.id, trusted(*numbers), require_signatures=True)
    return judge.verify(image.content, IMAGE)


def replace(repository: Repository, content: bytes | None) -> None:
    ref = repository.origin.get_ref(NAME)
    repository.origin.swap_ref(NAME, ref.token if ref else None, content)


def test_registered_image_has_a_signed_record(repository: Repository) -> None:
    report = enter(repository, writer())
    found = verified(repository, 0)
    assert (report.status, found.record.manifest) == ("registered", report.manifest)
    assert found.key_id == public(0).id
    again = enter(repository, writer())
    assert again.status == "already registered"
    assert verified(repository, 0) == found


def test_record_of_a_release_before_is_signed_by_registering_again(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    before = repository.get_image(IMAGE).record
    report = enter(repository, writer())
    assert (report.status, report.bytes_stored) == ("signed", 0)
    assert verified(repository, 0).record.manifest == before.manifest == report.manifest
    assert read_back(repository, 0) == CONTENT


def test_other_content_is_refused_whoever_has_signed_it(repository: Repository) -> None:
    for records in (UnsignedRecords(), writer(), writer(7)):
        enter(repository, records, disk(4, 5))
        with pytest.raises(exception.ImageRefusedError, match="other content"):
            enter(repository, writer(), CONTENT)
        replace(repository, None)


def test_record_of_an_unknown_key_is_replaced(repository: Repository) -> None:
    enter(repository, writer(7))
    assert enter(repository, writer(0)).status == "signed"
    assert verified(repository, 0).key_id == public(0).id


def test_forged_record_is_never_signed(repository: Repository) -> None:
    """It says the content that is registered, and names the manifest of another disk."""
    register(repository, 0, CONTENT)
    record = repository.get_image(IMAGE).record
    register(repository, 1, disk(9, 9, 9, 9))
    other = repository.get_image(image_id(1)).record
    replace(repository, dataclasses.replace(record, manifest=other.manifest).encode())
    with pytest.raises(exception.ImageRefusedError, match="other content"):
        enter(repository, writer())
    replace(repository, dataclasses.replace(record, manifest="0" * 64).encode())
    assert enter(repository, writer()).status == "repaired"
    assert verified(repository, 0).record.manifest not in ("0" * 64, other.manifest)
    assert read_back(repository, 0) == CONTENT


def test_manifest_that_is_longer_is_never_signed(repository: Repository) -> None:
    """Each chunk of the registered file is as it says, and then it goes on."""
    register(repository, 0, CONTENT)
    record = repository.get_image(IMAGE).record
    replace(repository, None)
    register(repository, 0, CONTENT + disk(8))
    longer = repository.get_image(IMAGE).record.manifest
    replace(repository, dataclasses.replace(record, manifest=longer).encode())
    with pytest.raises(exception.ImageRefusedError, match="other content"):
        enter(repository, writer())


def test_repair_stays_signed_with_a_higher_generation(repository: Repository) -> None:
    enter(repository, writer())
    before = verified(repository, 0)
    for key in list(repository.origin.list(layout.MANIFEST_PREFIX)):
        repository.origin.delete(key)
    assert enter(repository, writer()).status == "repaired"
    assert verified(repository, 0).generation > before.generation


def test_image_that_is_removed_and_registered_anew_has_a_higher_generation(
    repository: Repository,
) -> None:
    times = iter([1000.0, 400.0])
    enter(repository, SignedRecords(private(0), trusted(), lambda: next(times)))
    before = verified(repository, 0)
    repository.remove_image(IMAGE)
    enter(repository, SignedRecords(private(0), trusted(), lambda: next(times)), disk(5))
    assert verified(repository, 0).generation > before.generation


def test_generation_is_above_that_of_a_believed_record_alone(repository: Repository) -> None:
    record = registered_record(repository)
    huge = writer(0).encode_as(repository, IMAGE, record, 1 << 50)
    assert generation_after(repository, writer(0), huge) == (1 << 50) + 1
    forged = writer(7).encode_as(repository, IMAGE, record, 1 << 51)
    assert generation_after(repository, writer(0), forged) < 1 << 51


def registered_record(repository: Repository) -> ImageRecord:
    register(repository, 0, CONTENT)
    return repository.get_image(IMAGE).record


def generation_after(repository: Repository, records: SignedRecords, present: bytes) -> int:
    record = repository.get_image(IMAGE).record
    replace(repository, records.encode(repository, IMAGE, record, present))
    return verified(repository, 0).generation


def test_registrar_without_a_key_does_not_replace_a_signed_record(repository: Repository) -> None:
    enter(repository, writer())
    assert enter(repository, UnsignedRecords()).status == "already registered"
    for key in list(repository.origin.list(layout.MANIFEST_PREFIX)):
        repository.origin.delete(key)
    with pytest.raises(exception.InvalidError, match="this machine has no key"):
        enter(repository, UnsignedRecords())
    assert verified(repository, 0).key_id == public(0).id


def test_verifier_refuses_what_a_registrar_without_a_key_wrote(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    with pytest.raises(UnverifiedError) as caught:
        verified(repository, 0)
    assert caught.value.reason is RefusalReason.UNSIGNED
