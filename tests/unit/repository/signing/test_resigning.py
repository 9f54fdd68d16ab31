"""Signing all records: what is signed, what is refused, and whatever interrupts it."""

import dataclasses

import pytest

from acstor import exception
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.images.record_writer import SignedRecords
from acstor.repository.images.resigning import BATCH_SIZE, Resigning, SigningReport
from acstor.repository.images.signed_record import RecordVerifier, VerifiedRecord
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository
from tests.unit.repository.images import disk, image_id, open_repository, register
from tests.unit.repository.signing.keys import private, public, trusted


@pytest.fixture
def origin() -> FaultyOrigin:
    return FaultyOrigin(MemoryOrigin())


@pytest.fixture
def repository(origin: FaultyOrigin) -> Repository:
    made = open_repository(origin)
    for number in range(3):
        register(made, number, disk(number + 1))
    return made


def sign(
    repository: Repository,
    number: int,
    *trusting: int,
    adopt_unsigned: bool = False,
    are_all_signed_anew: bool = False,
) -> SigningReport:
    records = SignedRecords(private(number), trusted(*trusting))
    return Resigning(
        repository,
        records,
        adopt_unsigned=adopt_unsigned,
        are_all_signed_anew=are_all_signed_anew,
    ).run()


def verified(repository: Repository, image: int, *numbers: int) -> VerifiedRecord:
    found = repository.get_image(image_id(image))
    judge = RecordVerifier(repository.format.id, trusted(*numbers), require_signatures=True)
    return judge.verify(found.content, found.id)


def counts(report: SigningReport) -> tuple[int, int, int, int, int]:
    return report.images, report.signed, report.adopted, report.unchanged, len(report.refused)


def test_unsigned_records_are_signed_on_demand_alone(repository: Repository) -> None:
    before = [image.content for image in repository.list_images()]
    report = sign(repository, 0)
    assert counts(report) == (3, 0, 0, 0, 3)
    assert "--adopt-unsigned" in report.refused[image_id(0)]
    assert [image.content for image in repository.list_images()] == before
    assert counts(sign(repository, 0, adopt_unsigned=True)) == (3, 3, 3, 0, 0)
    assert {verified(repository, image, 0).key_id for image in range(3)} == {public(0).id}
    assert counts(sign(repository, 0)) == (3, 0, 0, 3, 0), "repeating it changes nothing"


def test_record_says_the_same_under_the_next_key(repository: Repository) -> None:
    sign(repository, 0, adopt_unsigned=True)
    before = [verified(repository, image, 0) for image in range(3)]
    assert counts(sign(repository, 1, 0)) == (3, 3, 0, 0, 0)
    after = [verified(repository, image, 1) for image in range(3)]
    assert [each.record for each in after] == [each.record for each in before]
    assert min(each.generation for each in after) > max(each.generation for each in before)


def test_all_are_signed_anew_after_a_restore(repository: Repository) -> None:
    sign(repository, 0, adopt_unsigned=True)
    before = [verified(repository, image, 0) for image in range(3)]
    assert counts(sign(repository, 0, are_all_signed_anew=True)) == (3, 3, 0, 0, 0)
    after = [verified(repository, image, 0) for image in range(3)]
    assert min(each.generation for each in after) > max(each.generation for each in before)


def test_what_no_trusted_key_has_signed_is_refused(repository: Repository) -> None:
    """A thief's records would else be signed by the key that comes after the stolen one."""
    sign(repository, 7, adopt_unsigned=True)
    report = sign(repository, 1, 0, adopt_unsigned=True)
    assert counts(report) == (3, 0, 0, 0, 3)
    assert public(7).id[:16] in report.refused[image_id(0)]


def test_changed_and_damaged_records_leave_the_others(
    repository: Repository, origin: FaultyOrigin
) -> None:
    sign(repository, 0, adopt_unsigned=True)
    image = repository.get_image(image_id(0))
    content = image.content.replace(b"image 0", b"image 9")
    origin.swap_ref(layout.image_ref(image.id), image.token, content)
    origin.swap_ref(layout.image_ref(image_id(5)), None, b"{")
    report = sign(repository, 1, 0, adopt_unsigned=True)
    assert counts(report) == (4, 2, 0, 0, 2)
    assert set(report.refused) == {image_id(0), image_id(5)}
    current = origin.get_ref(layout.image_ref(image.id))
    assert current is not None
    assert current.content == content


class Meddling(FaultyOrigin):
    """Somebody changes a record just before it is written, some times."""

    def __init__(self, inner: MemoryOrigin, times: int) -> None:
        super().__init__(inner)
        self.times = times

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        if name == layout.image_ref(image_id(1)) and expected and self.times:
            self.times -= 1
            image = Repository.open(self._inner).get_image(image_id(1))
            record = dataclasses.replace(image.record, name=f"image {self.times}")
            self._inner.swap_ref(name, image.token, record.encode())
        return super().swap_ref(name, expected, content)


@pytest.mark.parametrize(("times", "refused"), [(1, 0), (2, 0), (3, 1)])
def test_record_that_changes_meanwhile_is_read_again(times: int, refused: int) -> None:
    inner = MemoryOrigin()
    plain = open_repository(inner)
    for number in range(3):
        register(plain, number, disk(number + 1))
    report = sign(Repository.open(Meddling(inner, times)), 0, adopt_unsigned=True)
    assert counts(report) == (3, 3 - refused, 3 - refused, 0, refused)
    if not refused:
        assert verified(plain, 1, 0).record.name == "image 0", "as it was at last"


def test_run_that_was_interrupted_goes_on(repository: Repository, origin: FaultyOrigin) -> None:
    for effect in (Effect.ERROR, Effect.LOST_ANSWER):
        call = origin.calls[Operation.SWAP_REF] + 2
        origin.faults[:] = [Fault(Operation.SWAP_REF, effect, call=call)]
        with pytest.raises(exception.UnavailableError):
            sign(repository, 0, adopt_unsigned=True)
    origin.faults.clear()
    report = sign(repository, 0, adopt_unsigned=True)
    assert (report.signed + report.unchanged, report.refused) == (3, {})
    assert {verified(repository, image, 0).key_id for image in range(3)} == {public(0).id}


def test_many_images_reserve_generations_together() -> None:
    origin = FaultyOrigin(MemoryOrigin())
    repository = open_repository(origin)
    report = register(repository, 0, disk(1))
    record = repository.get_image(report.image_id).record.encode()
    for number in range(1, BATCH_SIZE + 10):
        origin.swap_ref(layout.image_ref(image_id(number)), None, record)
    before = origin.calls[Operation.SWAP_REF]
    shown: list[int] = []

    class Shown(Progress):
        def begin(self, what: str, total: int) -> None:
            shown.append(total)

        def advance(self, count: int) -> None:
            shown.append(count)

    records = SignedRecords(private(0), trusted())
    Resigning(repository, records, adopt_unsigned=True, progress=Shown()).run()
    assert origin.calls[Operation.SWAP_REF] - before == 3 * (BATCH_SIZE + 10) + 2
    assert shown == [BATCH_SIZE + 10, BATCH_SIZE, 10]
    generations = {verified(repository, number, 0).generation for number in range(BATCH_SIZE + 10)}
    assert len(generations) == BATCH_SIZE + 10
