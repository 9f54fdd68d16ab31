"""Statements of the registrar: about what is registered, and not about what somebody put there."""

import time

import pytest

from acstor import exception
from acstor.origin.base import Ref
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.registrar.index_statements import READ_AGAIN_AFTER, RENEWED_AFTER
from acstor.registrar.index_upkeep import IndexUpkeep
from acstor.repository import layout
from acstor.repository.images import index_statement
from acstor.repository.images.image_index import INDEX_REF, ImageIndex
from acstor.repository.images.index_statement import IndexStatement
from acstor.repository.images.record_writer import SignedRecords
from tests.unit.repository import images
from tests.unit.repository.signing.keys import private, trusted
from tests.unit.repository.signing.stating_registrar import NOW, Registrar


def snapshot(**records: bytes) -> str:
    return index_statement.snapshot_digest(
        {
            images.image_id(int(name.removeprefix("n"))): index_statement.record_digest(content)
            for name, content in records.items()
        }
    )


@pytest.fixture
def faulty() -> FaultyOrigin:
    return FaultyOrigin(MemoryOrigin())


@pytest.fixture
def registrar() -> Registrar:
    return Registrar(images.open_repository(MemoryOrigin()))


def test_statement_is_about_all_records_at_a_generation(registrar: Registrar) -> None:
    one, two = registrar.register(1), registrar.register(2)
    found = registrar.keep()
    index = registrar.index()
    assert found == IndexStatement(
        index.id, index.generation, 2, snapshot(n1=one, n2=two), int(NOW)
    )


def test_origin_without_images_has_one_too(registrar: Registrar) -> None:
    registrar.upkeep.keep()
    assert registrar.keep().images == 0


def test_changed_image_is_read_and_the_others_are_not(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = registrar.register(1)
    registrar.keep()
    two = registrar.register(2)
    read: list[str] = []
    get_ref = registrar.repository.origin.get_ref

    def counted(name: str) -> Ref | None:
        read.append(name)
        return get_ref(name)

    monkeypatch.setattr(registrar.repository.origin, "get_ref", counted)
    registrar.upkeep.keep()
    assert layout.image_ref(images.image_id(1)) not in read
    assert registrar.stated().snapshot == snapshot(n1=one, n2=two)


def test_statement_is_renewed_now_and_then(registrar: Registrar) -> None:
    registrar.register(1)
    first = registrar.keep()
    assert registrar.keep(RENEWED_AFTER / 2) == first
    assert registrar.keep(RENEWED_AFTER).time == int(registrar.now)


def test_statement_that_somebody_has_taken_away_is_put_back(registrar: Registrar) -> None:
    registrar.register(1)
    first = registrar.keep()
    ref = registrar.repository.origin.get_ref(INDEX_REF)
    assert ref is not None
    bare = ImageIndex(first.index_id, first.generation, registrar.index().changes)
    registrar.repository.origin.swap_ref(INDEX_REF, ref.token, bare.encode())
    assert registrar.keep(1.0).snapshot == first.snapshot


def test_writers_without_a_key_keep_the_statement(registrar: Registrar) -> None:
    registrar.register(1)
    first = registrar.keep()
    with registrar.repository.image_index.changing(images.image_id(2)):
        assert registrar.stated() == first
    assert registrar.stated() == first
    assert registrar.index().generation == first.generation + 1


def test_nothing_is_stated_while_an_image_is_being_changed(registrar: Registrar) -> None:
    registrar.register(1)
    first = registrar.keep()
    with registrar.repository.image_index.changing(images.image_id(2)):
        assert registrar.keep(2 * RENEWED_AFTER) == first
    assert registrar.keep().generation == first.generation + 1


def test_index_that_changes_meanwhile_is_not_stated(registrar: Registrar) -> None:
    registrar.register(1)
    former = registrar.keep()
    index = registrar.index()
    registrar.register(2)
    assert not registrar.repository.image_index.put_statement(index, "a statement")
    assert registrar.stated() == former


def test_old_and_forged_records_are_not_stated(registrar: Registrar) -> None:
    old = registrar.register(1)
    new = registrar.records.encode(
        registrar.repository,
        images.image_id(1),
        registrar.repository.get_image(images.image_id(1)).record,
        old,
    )
    registrar.put(1, new)
    good = registrar.keep()
    assert good.snapshot == snapshot(n1=new)
    unsigned = registrar.repository.get_image(images.image_id(1)).record.encode()
    for lie in (old, new.replace(b'"raw"', b'"iso"'), unsigned):
        registrar.put(1, lie)
        assert registrar.keep(2 * READ_AGAIN_AFTER).snapshot == good.snapshot
    registrar.put(1, None)
    assert registrar.keep(2 * READ_AGAIN_AFTER).images == 0


def test_forged_record_of_a_new_image_is_left_out(registrar: Registrar) -> None:
    one = registrar.register(1)
    stranger = SignedRecords(private(5), trusted(5))
    image = registrar.repository.get_image(images.image_id(1))
    with registrar.repository.image_index.changing(images.image_id(2)):
        registrar.put(2, stranger.encode_as(registrar.repository, image.id, image.record, 1))
    found = registrar.keep()
    assert (found.images, found.snapshot) == (1, snapshot(n1=one))


def test_next_leader_signs_with_its_own_key(registrar: Registrar) -> None:
    registrar.register(1)
    first = registrar.keep()
    later = Registrar(registrar.repository, 1)
    later.now = NOW + 10
    assert later.keep() == IndexStatement(
        first.index_id, first.generation, 1, first.snapshot, int(NOW + 10)
    )
    text = later.index().statement
    assert text is not None
    found = index_statement.verify(text.encode(), later.repository.format.id, trusted(1))
    assert found.statement.time == int(NOW + 10)


def test_full_origin_stops_nothing_else(faulty: FaultyOrigin) -> None:
    registrar = Registrar(images.open_repository(faulty))
    registrar.register(1)
    first = registrar.keep()
    full = Fault(Operation.SWAP_REF, Effect.ERROR, error=exception.ExhaustedError)
    faulty.faults = [full]
    assert registrar.keep(2 * RENEWED_AFTER) == first
    faulty.faults = []
    assert registrar.keep().time == int(registrar.now)


def test_registrar_without_a_key_states_nothing(registrar: Registrar) -> None:
    IndexUpkeep(registrar.repository.image_index, time.monotonic).keep()
    assert registrar.index().statement is None
