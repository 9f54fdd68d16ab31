"""An index that somebody rewrites: what a host tells of it, and that it reads all records then."""

import dataclasses
import pathlib
from collections import Counter

import pytest

from acstor import exception
from acstor.agent.reconcilers.image_records import ImageRecords
from acstor.agent.reconcilers.index_trust import STALE_AFTER, IndexTrust
from acstor.agent.reconcilers.registered_images import RegisteredImages
from acstor.agent.reconcilers.seen_index import SeenIndex
from acstor.agent.reconcilers.seen_records import SeenRecords
from acstor.origin.memory import MemoryOrigin
from acstor.registrar.index_statements import RENEWED_AFTER
from acstor.repository.images.image_index import INDEX_REF, ImageIndex
from acstor.repository.images.index_statement import record_digest
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.signing.trusted_keys import TrustedKeys
from tests.unit.agent.conftest import Clock
from tests.unit.repository import images
from tests.unit.repository.signing.keys import install
from tests.unit.repository.signing.stating_registrar import Registrar


class Host:
    """A host that follows the images of a registrar's origin, and requires signatures."""

    def __init__(self, registrar: Registrar, clock: Clock, path: pathlib.Path) -> None:
        self.registrar = registrar
        self.repository = registrar.repository
        self.clock = clock
        self.path = path
        (path / "agent").mkdir(exist_ok=True)
        self.keys = path / "keys"
        install(self.keys, 0)
        self.refused: Counter[str] = Counter()
        self.ages: list[float] = []
        self.now = registrar.now
        self.start()

    def start(self) -> None:
        repository_id = self.repository.format.id
        self.trusted = TrustedKeys(str(self.keys))
        verifier = RecordVerifier(repository_id, self.trusted, require_signatures=True)
        trust = IndexTrust(
            verifier,
            SeenIndex(str(self.path / "agent" / "seen-index.json"), repository_id),
            lambda reason: self.refused.update([reason]),
            self.ages.append,
            lambda: self.now,
        )
        self.records = ImageRecords(
            self.repository.origin,
            verifier,
            SeenRecords(str(self.path / "agent" / "seen-records.json"), repository_id),
        )
        self.records.begin()
        self.images = RegisteredImages(
            self.repository.origin, has_index=True, trust=trust, clock=self.clock
        )

    def look(self) -> set[str]:
        """Look once as the agent does; return the ids of the images that were read."""
        if self.records.begin():
            self.images.judge_again()
        read = {one for one in self.images.refresh() if self.images.is_stale(one)}
        for one in read:
            try:
                record = self.records.read(one)
            except exception.CorruptError:
                continue
            self.images.note_read(one, is_registered=record is not None)
        self.images.compare(self.records.digests)
        return read

    def index(self) -> ImageIndex:
        return self.registrar.index()

    def rewrite(self, index: ImageIndex) -> None:
        """Write the index as somebody does who can write to the origin."""
        ref = self.repository.origin.get_ref(INDEX_REF)
        assert ref is not None
        self.repository.origin.swap_ref(INDEX_REF, ref.token, index.encode())


COUNT = 6


@pytest.fixture
def registrar() -> Registrar:
    made = Registrar(images.open_repository(MemoryOrigin()))
    for number in range(COUNT):
        made.register(number + 1)
    made.keep()
    return made


@pytest.fixture
def host(registrar: Registrar, clock: Clock, tmp_path: pathlib.Path) -> Host:
    made = Host(registrar, clock, tmp_path)
    assert len(made.look()) == COUNT
    return made


def test_honest_origin_is_believed_and_costs_nothing_more(host: Host, registrar: Registrar) -> None:
    for _ in range(5):
        assert len(host.look()) == 1
    new = registrar.register(20)
    read = host.look()
    assert images.image_id(20) in read
    assert len(read) <= 2, "that one, and one that was due, which may be the same"
    registrar.keep()
    host.look()
    assert not host.refused
    assert host.records.digests[images.image_id(20)]
    assert new


def test_old_index_that_is_put_back_is_told_of_and_all_is_read(
    host: Host, registrar: Registrar
) -> None:
    old = host.index()
    registrar.register(20)
    registrar.keep()
    host.look()
    host.rewrite(old)
    assert len(host.look()) == COUNT + 1
    assert host.refused == {"rollback": 1}
    assert len(host.look()) == 1, "told of once, and not at each look"


def test_old_index_is_known_after_a_restart(host: Host, registrar: Registrar) -> None:
    old = host.index()
    registrar.register(20)
    registrar.keep()
    host.look()
    host.rewrite(old)
    host.start()
    host.look()
    assert host.refused == {"rollback": 1}


def test_index_set_back_under_a_newer_statement_is_told_of(host: Host) -> None:
    index = host.index()
    host.rewrite(dataclasses.replace(index, generation=index.generation - 1, changes=()))
    host.look()
    assert host.refused == {"rollback": 1}


def test_statement_of_another_index_is_told_of(host: Host) -> None:
    host.rewrite(dataclasses.replace(ImageIndex.new(), statement=host.index().statement))
    assert len(host.look()) == COUNT
    assert host.refused == {"other_subject": 1}


def test_forged_statement_is_told_of(host: Host) -> None:
    index = host.index()
    assert index.statement is not None
    forged = index.statement.replace('"images": 6', '"images": 5')
    host.rewrite(dataclasses.replace(index, statement=forged))
    assert len(host.look()) == COUNT
    host.rewrite(dataclasses.replace(index, statement="no statement"))
    host.look()
    assert host.refused == {"bad_signature": 1, "malformed": 1}


def test_change_that_somebody_hides_is_found_with_the_next_statement(
    host: Host, registrar: Registrar
) -> None:
    before = host.index()
    new = registrar.register(3)
    later = host.index()
    hidden = [change for change in later.changes if change[1] != images.image_id(3)]
    host.rewrite(dataclasses.replace(later, changes=tuple(hidden)))
    assert before.generation < later.generation
    host.look()
    # A registrar that follows the same index does not see it either; one that reads all does.
    registrar.lead()
    registrar.keep()
    for _ in range(3):
        host.look()
    assert host.records.digests[images.image_id(3)] == record_digest(new)
    assert not host.refused


def test_old_record_that_a_host_has_not_seen_is_told_of(
    registrar: Registrar, clock: Clock, tmp_path: pathlib.Path
) -> None:
    old = registrar.register(3)
    registrar.register(3)
    registrar.keep()
    registrar.put(3, old)
    new_host = Host(registrar, clock, tmp_path)
    for _ in range(3):
        new_host.look()
    assert new_host.refused["snapshot"] >= 1


def test_record_that_somebody_has_taken_away_is_told_of(
    host: Host, registrar: Registrar, clock: Clock, tmp_path: pathlib.Path
) -> None:
    registrar.put(3, None)
    (tmp_path / "new").mkdir()
    new_host = Host(registrar, clock, tmp_path / "new")
    for _ in range(3):
        new_host.look()
    assert new_host.refused["snapshot"] >= 1


def test_change_under_way_is_no_difference(host: Host, registrar: Registrar) -> None:
    with host.repository.image_index.changing(images.image_id(3)):
        registrar.put(3, None)
        for _ in range(3):
            host.look()
    host.look()
    assert not host.refused


def test_index_that_is_kept_as_it_was_becomes_old(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    assert host.ages[-1] < STALE_AFTER
    host.now += STALE_AFTER + 1
    for _ in range(3):
        host.look()
    assert host.ages[-1] > STALE_AFTER
    assert caplog.text.count("the newest statement about the index of images is") == 1
    assert not host.refused, "it is told of, and nothing is refused"


def test_statement_that_is_taken_away_becomes_old(host: Host) -> None:
    host.rewrite(dataclasses.replace(host.index(), statement=None))
    host.now += STALE_AFTER + 1
    host.look()
    assert host.ages[-1] > STALE_AFTER
    assert not host.refused


def test_renewed_statement_is_young_again(host: Host, registrar: Registrar) -> None:
    host.now += STALE_AFTER
    registrar.keep(STALE_AFTER + RENEWED_AFTER)
    host.look()
    assert host.ages[-1] < STALE_AFTER


def test_clock_that_is_wrong_by_an_hour_is_told_of_only(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.now -= STALE_AFTER + 10
    assert len(host.look()) == 1
    assert host.ages[-1] < -STALE_AFTER
    assert "a clock is wrong" in caplog.text
    assert not host.refused


def test_key_is_rotated(host: Host, registrar: Registrar) -> None:
    later = Registrar(registrar.repository, 1)
    later.now = registrar.now
    later.keep()
    host.look()
    assert host.refused == {"unknown_key": 1}
    install(host.keys, 0, 1)
    host.look()
    install(host.keys, 1)
    for _ in range(3):
        host.look()
    assert host.refused["unknown_key"] == 1
    assert host.ages[-1] < STALE_AFTER
