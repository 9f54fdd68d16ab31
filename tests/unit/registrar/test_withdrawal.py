"""Rounds of a withdrawal, step by step: who is waited for, how long, and what ends it."""

import pathlib
from unittest import mock

import pytest

from acstor import exception
from acstor.origin.base import DamagedRefError, Origin, Ref
from acstor.origin.memory import MemoryOrigin
from acstor.registrar.withdrawal import PATIENCE_MIN, POLL_INTERVAL, USAGE_AGE_MAX, Withdrawals
from acstor.repository.images import usage
from acstor.repository.images.image_registry import Entry, EntryState, ImageRegistry
from acstor.repository.images.usage import base_name
from acstor.repository.images.withdrawal_rounds import ROUNDS_REF, Phase, read_rounds, write_rounds
from acstor.repository.repository import Repository
from testbed.fixtures.usage_records import write_usage
from tests.unit.repository.images import disk, image_id, open_repository, register

IMAGE = image_id(0)
GRACE = 600.0
SPEAKS_WITHIN = 35.0


class Clock:
    """Seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Withdrawn:
    """One withdrawn image, and registrars that look at it."""

    def __init__(self, *, is_urgent: bool = False) -> None:
        self.origin: Origin = MemoryOrigin()
        self.repository: Repository = open_repository(self.origin)
        register(self.repository, 0, disk(1, 2, 3))
        self.image_registry = ImageRegistry(self.origin)
        self.image_registry.replace(IMAGE, None, Entry(EntryState.WITHDRAWN, is_urgent=is_urgent))
        self.clock = Clock()
        self.removals = 0
        self.withdrawals = self.registrar()

    def registrar(self) -> Withdrawals:
        """Return a registrar that has just begun to lead; its wall clock is years ahead."""

        def count() -> None:
            self.removals += 1

        return Withdrawals(self.repository, GRACE, SPEAKS_WITHIN, count, lambda: 4e9, self.clock)

    def advance(self, withdrawals: Withdrawals | None = None) -> Phase | None:
        """Look once; return the phase afterwards."""
        withdrawals = withdrawals or self.withdrawals
        withdrawals.forget_usage()
        listed, image = self.image_registry.find(IMAGE), self.repository.find_image(IMAGE)
        assert listed is not None
        if withdrawals.complete(IMAGE, image, is_withdrawn=True):
            assert image is not None
            withdrawals.advance(listed, image, self.image_registry)
        return self.phase

    @property
    def phase(self) -> Phase | None:
        return read_rounds(self.origin).phase_of(IMAGE)

    def is_published(self) -> bool:
        return self.repository.find_image(IMAGE) is not None

    def answer(self, host: str, *images: str, **fields: object) -> None:
        """Have a host look at its disk after the newest round."""
        newest = read_rounds(self.origin)
        said = {"round": newest.round, "epoch": newest.epoch, **fields}
        write_usage(self.origin, host, images, **said)

    def close(self, *hosts: str) -> None:
        """Have the image be closed, and hosts answer that as well."""
        for host in hosts:
            write_usage(self.origin, host)
        self.advance()
        for host in hosts:
            self.answer(host)
        self.advance()
        self.clock.now += GRACE
        assert self.advance() is Phase.CLOSING
        for host in hosts:
            self.answer(host)

    def decide(self, token: str) -> None:
        """Write that the image with this token goes, and die."""
        rounds = read_rounds(self.origin)
        write_rounds(self.origin, rounds.changed(IMAGE, Phase.REMOVING, image_token=token))


@pytest.fixture
def withdrawn() -> Withdrawn:
    return Withdrawn()


def test_image_goes_when_every_host_has_answered_two_rounds(withdrawn: Withdrawn) -> None:
    for host in ("h1", "h2"):
        write_usage(withdrawn.origin, host)
    assert withdrawn.advance() is Phase.ASKED
    withdrawn.answer("h1")
    withdrawn.advance()
    withdrawn.clock.now += 10 * GRACE
    assert withdrawn.advance() is Phase.ASKED, "h2 has not spoken since"
    withdrawn.answer("h2")
    withdrawn.advance()
    withdrawn.clock.now += GRACE - 1
    assert withdrawn.advance() is Phase.ASKED
    withdrawn.clock.now += 1
    assert withdrawn.advance() is Phase.CLOSING
    withdrawn.answer("h1")
    withdrawn.clock.now += 10 * GRACE
    assert withdrawn.advance() is Phase.CLOSING, "h2 may have made an instance since"
    assert withdrawn.is_published()
    withdrawn.answer("h2")
    assert withdrawn.advance() is None
    assert not withdrawn.is_published()
    assert withdrawn.removals == 1


def test_host_that_uses_it_keeps_it_and_opens_it_again(withdrawn: Withdrawn) -> None:
    write_usage(withdrawn.origin, "h1")
    withdrawn.advance()
    withdrawn.answer("h1")
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    assert withdrawn.advance() is Phase.CLOSING
    withdrawn.answer("h1", IMAGE)
    assert withdrawn.advance() is Phase.ASKED
    withdrawn.clock.now += 10 * GRACE
    assert withdrawn.advance() is Phase.ASKED
    withdrawn.answer("h1")
    withdrawn.advance()
    assert withdrawn.advance() is Phase.ASKED, "the grace begins anew"


def test_base_that_no_host_can_name_is_a_use(withdrawn: Withdrawn) -> None:
    withdrawn.advance()
    withdrawn.answer("h1", bases=frozenset({base_name(IMAGE)}))
    withdrawn.advance()
    withdrawn.clock.now += 10 * GRACE
    assert withdrawn.advance() is Phase.ASKED


def test_silent_host_is_named_with_what_to_do(withdrawn: Withdrawn) -> None:
    write_usage(withdrawn.origin, "h9", time="2026-10-23T07:00:00+00:00")
    withdrawn.advance()
    withdrawn.advance()
    assert withdrawn.withdrawals.silent_hosts() == {}, "it has had no time yet"
    assert withdrawn.withdrawals.due_in(IMAGE) == POLL_INTERVAL
    withdrawn.clock.now += PATIENCE_MIN
    withdrawn.advance()
    text = withdrawn.withdrawals.silent_hosts()["h9"]
    assert f"image {IMAGE} cannot go before" in text
    assert "since 2026-10-23T07:00:00+00:00" in text
    assert "acstor host forget h9" in text
    assert withdrawn.withdrawals.due_in(IMAGE) is None, "it may be silent for weeks"
    withdrawn.answer("h9")
    withdrawn.advance()
    assert withdrawn.withdrawals.silent_hosts() == {}


def test_host_of_the_release_before_is_waited_for(withdrawn: Withdrawn) -> None:
    withdrawn.origin.swap_ref("usage/old", None, b'{"version": 1, "images": []}')
    for _ in range(3):
        withdrawn.clock.now += GRACE
        assert withdrawn.advance() is Phase.ASKED
    assert "upgrade acstor-agent" in withdrawn.withdrawals.silent_hosts()["old"]


def test_forgotten_host_is_waited_for_no_more(withdrawn: Withdrawn) -> None:
    write_usage(withdrawn.origin, "h9", [IMAGE])
    withdrawn.advance()
    ref = withdrawn.origin.get_ref("usage/h9")
    assert ref is not None
    withdrawn.origin.swap_ref("usage/h9", ref.token, None)
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    withdrawn.advance()
    withdrawn.advance()
    assert not withdrawn.is_published()


def test_next_registrar_waits_for_the_whole_grace(withdrawn: Withdrawn) -> None:
    """Whatever its clock says: that of the one before may have been behind by years."""
    withdrawn.advance()
    withdrawn.advance()
    withdrawn.clock.now += GRACE - 1
    following = withdrawn.registrar()
    withdrawn.advance(following)
    withdrawn.clock.now += GRACE - 1
    assert withdrawn.advance(following) is Phase.ASKED
    withdrawn.clock.now += 1
    assert withdrawn.advance(following) is Phase.CLOSING


@pytest.mark.parametrize("speaks_within", [0.0, 7.0, 60.0])
def test_urgent_withdrawal_leaves_a_spawn_its_time(speaks_within: float) -> None:
    """Nova has seen the base, and its overlay is in no record yet."""
    withdrawn = Withdrawn(is_urgent=True)
    write_usage(withdrawn.origin, "h1", speaks_within=speaks_within)
    withdrawn.advance()
    withdrawn.answer("h1")
    withdrawn.advance()
    withdrawn.clock.now += 2 * (speaks_within or SPEAKS_WITHIN) - 1
    assert withdrawn.advance() is Phase.ASKED
    withdrawn.clock.now += 1
    assert withdrawn.advance() is Phase.CLOSING


def test_removal_that_was_decided_is_done_by_whoever_leads_next(withdrawn: Withdrawn) -> None:
    withdrawn.close()
    withdrawn.decide(withdrawn.repository.get_image(IMAGE).token)
    write_usage(withdrawn.origin, "h1", [IMAGE])  # too late: it was decided
    assert withdrawn.advance(withdrawn.registrar()) is None
    assert not withdrawn.is_published()


def test_removal_takes_no_image_that_was_registered_since(withdrawn: Withdrawn) -> None:
    """The registrar died when the image's ref was gone; an operator has registered it again."""
    withdrawn.close()
    former = withdrawn.repository.get_image(IMAGE)
    withdrawn.decide(former.token)
    withdrawn.repository.remove_image(IMAGE, former.token)
    register(withdrawn.repository, 0, disk(4, 5))
    following = withdrawn.registrar()
    image = withdrawn.repository.find_image(IMAGE)
    assert following.complete(IMAGE, image, is_withdrawn=False)
    assert withdrawn.repository.find_image(IMAGE) == image
    assert withdrawn.phase is None


def test_removal_names_the_image_that_it_was_decided_of(
    withdrawn: Withdrawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdrawn.close("h1")
    token = withdrawn.repository.get_image(IMAGE).token
    decided: list[str | None] = []

    def note(repository: Repository, image_id: str, expected: str | None = None) -> None:
        decided.append(read_rounds(withdrawn.origin).images[image_id].image_token)
        raise exception.NotFoundError("image")

    monkeypatch.setattr(Repository, "remove_image", note)
    withdrawn.advance()
    assert decided == [token]


def restore(origin: Origin, name: str, content: bytes) -> None:
    """Write what a ref was once, as from a backup."""
    ref = origin.get_ref(name)
    origin.swap_ref(name, ref.token if ref else None, content)


@pytest.mark.parametrize("is_registrar_new", [False, True])
def test_answers_that_were_restored_with_the_rounds_are_none(
    withdrawn: Withdrawn, is_registrar_new: bool
) -> None:
    """The image was opened again and used since the backup was made."""
    withdrawn.close("h1")
    backup = {
        name: ref.content
        for name in (ROUNDS_REF, "usage/h1")
        if (ref := withdrawn.origin.get_ref(name))
    }
    withdrawn.withdrawals.cancel(IMAGE)
    withdrawn.answer("h1", IMAGE)
    for name, content in backup.items():
        restore(withdrawn.origin, name, content)
    registrar = withdrawn.registrar() if is_registrar_new else None
    assert withdrawn.advance(registrar) is Phase.CLOSING
    assert withdrawn.advance(registrar) is Phase.CLOSING
    assert withdrawn.is_published()
    withdrawn.answer("h1", IMAGE)
    assert withdrawn.advance(registrar) is Phase.ASKED


def test_answer_to_rounds_that_were_lost_is_none_to_new_ones(withdrawn: Withdrawn) -> None:
    """However high its number: it was written after the registrar had looked at the records."""
    withdrawn.close("h1")
    lost = read_rounds(withdrawn.origin)
    withdrawn.origin.swap_ref(ROUNDS_REF, lost.token, None)
    withdrawn.advance()
    write_usage(withdrawn.origin, "h1", round=lost.round + 9, epoch=lost.epoch)
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    assert withdrawn.advance() is Phase.ASKED
    assert withdrawn.withdrawals.silent_hosts().keys() == {"h1"}


@pytest.mark.parametrize("number", [(1 << 53) - 1, 1 << 53, (1 << 62) - 1])
def test_record_with_a_high_round_stops_nobody(withdrawn: Withdrawn, number: int) -> None:
    """The round that all hosts are asked next is a number that all records can have."""
    write_usage(withdrawn.origin, "h9", round=number, epoch="another")
    withdrawn.advance()
    usage.forget_usage(withdrawn.origin, "h9")
    withdrawn.answer("h1")
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    assert withdrawn.advance() is Phase.CLOSING
    withdrawn.answer("h1")
    withdrawn.clock.now += 10 * GRACE
    assert withdrawn.advance() is None
    assert not withdrawn.is_published()


def test_registrar_keeps_its_epoch(withdrawn: Withdrawn) -> None:
    withdrawn.advance()
    first = read_rounds(withdrawn.origin)
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    withdrawn.advance()
    assert read_rounds(withdrawn.origin).epoch == first.epoch != ""


def test_decision_on_what_was_changed_meanwhile_has_no_effect(withdrawn: Withdrawn) -> None:
    """A registrar that leads no more, and was stopped between its look and its decision."""
    withdrawn.advance()
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    assert withdrawn.advance() is Phase.CLOSING
    listed, image = withdrawn.image_registry.find(IMAGE), withdrawn.repository.find_image(IMAGE)
    assert listed is not None
    assert image is not None
    withdrawn.withdrawals.forget_usage()
    withdrawn.withdrawals.complete(IMAGE, image, is_withdrawn=True)
    withdrawn.registrar().cancel(IMAGE)  # Glance has activated it again
    assert not withdrawn.withdrawals.advance(listed, image, withdrawn.image_registry)
    assert withdrawn.is_published()


def test_image_that_another_registrar_made_since_stays(withdrawn: Withdrawn) -> None:
    withdrawn.advance()
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    withdrawn.advance()
    stale = withdrawn.repository.get_image(IMAGE)
    withdrawn.advance()
    assert not withdrawn.is_published()
    register(withdrawn.repository, 0, disk(4, 5))
    with pytest.raises(exception.ConflictError):
        withdrawn.repository.remove_image(IMAGE, stale.token)
    assert withdrawn.is_published()


def test_rounds_of_an_image_that_is_not_withdrawn_are_dropped(withdrawn: Withdrawn) -> None:
    assert withdrawn.advance() is Phase.ASKED
    image = withdrawn.repository.find_image(IMAGE)
    assert withdrawn.withdrawals.complete(IMAGE, image, is_withdrawn=False)
    assert withdrawn.phase is None
    assert withdrawn.is_published()


def test_lost_rounds_are_never_answered_by_what_was_said_before(withdrawn: Withdrawn) -> None:
    write_usage(withdrawn.origin, "h1", round=40)
    withdrawn.advance()
    assert read_rounds(withdrawn.origin).round > 40


def test_many_images_that_wait_cost_no_more_readings_than_one(withdrawn: Withdrawn) -> None:
    write_usage(withdrawn.origin, "h1")
    withdrawn.advance()
    withdrawn.withdrawals.forget_usage()
    image = withdrawn.repository.find_image(IMAGE)
    listed = withdrawn.image_registry.find(IMAGE)
    assert listed is not None
    assert image is not None
    with mock.patch.object(usage, "read_all", wraps=usage.read_all) as read_all:
        for _ in range(100):
            withdrawn.withdrawals.forget_usage(USAGE_AGE_MAX)
            withdrawn.withdrawals.advance(listed, image, withdrawn.image_registry)
        assert read_all.call_count == 1
        withdrawn.clock.now += USAGE_AGE_MAX
        withdrawn.withdrawals.forget_usage(USAGE_AGE_MAX)
        withdrawn.withdrawals.advance(listed, image, withdrawn.image_registry)
        assert read_all.call_count == 2


def test_what_takes_long_to_read_is_not_read_at_each_look(withdrawn: Withdrawn) -> None:
    """Ten thousand hosts: what was read was too old already when the reading had ended."""
    write_usage(withdrawn.origin, "h1")
    withdrawn.advance()
    withdrawn.withdrawals.forget_usage()
    image = withdrawn.repository.find_image(IMAGE)
    listed = withdrawn.image_registry.find(IMAGE)
    assert listed is not None
    assert image is not None

    def slowly(origin: Origin) -> dict[str, usage.Usage]:
        withdrawn.clock.now += 4 * USAGE_AGE_MAX
        return read_all(origin)

    read_all = usage.read_all
    with mock.patch.object(usage, "read_all", side_effect=slowly) as reading:
        for _ in range(10):
            withdrawn.withdrawals.forget_usage(USAGE_AGE_MAX)
            withdrawn.withdrawals.advance(listed, image, withdrawn.image_registry)
            withdrawn.clock.now += 0.3 * USAGE_AGE_MAX
        assert reading.call_count == 1
        withdrawn.clock.now += USAGE_AGE_MAX
        withdrawn.withdrawals.forget_usage(USAGE_AGE_MAX)
        withdrawn.withdrawals.advance(listed, image, withdrawn.image_registry)
        assert reading.call_count == 2
        withdrawn.withdrawals.forget_usage()
        withdrawn.withdrawals.advance(listed, image, withdrawn.image_registry)
        assert reading.call_count == 3


@pytest.mark.parametrize("is_damaged_by_the_store", [False, True])
def test_malformed_rounds_begin_anew(withdrawn: Withdrawn, is_damaged_by_the_store: bool) -> None:
    withdrawn.close("h1")
    before = read_rounds(withdrawn.origin)
    token = withdrawn.origin.swap_ref(ROUNDS_REF, before.token, b"{")
    get_ref = withdrawn.origin.get_ref

    def damaged(name: str) -> Ref | None:
        found = get_ref(name)
        if found is not None and found.token == token:
            raise DamagedRefError("not what was written", token=found.token)
        return found

    if is_damaged_by_the_store:
        withdrawn.origin.get_ref = damaged  # type: ignore[method-assign]
    assert withdrawn.advance() is Phase.ASKED
    after = read_rounds(withdrawn.origin)
    assert after.epoch != before.epoch
    assert after.round > before.round
    withdrawn.clock.now += GRACE
    assert withdrawn.advance() is Phase.ASKED, "what hosts have answered before counts no more"
    withdrawn.answer("h1")
    withdrawn.advance()
    withdrawn.clock.now += GRACE
    assert withdrawn.advance() is Phase.CLOSING
    withdrawn.answer("h1")
    assert withdrawn.advance() is None
    assert not withdrawn.is_published()


def test_malformed_rounds_are_replaced_though_nothing_is_withdrawn(withdrawn: Withdrawn) -> None:
    withdrawn.origin.swap_ref(ROUNDS_REF, None, b"{")
    image = withdrawn.repository.find_image(IMAGE)
    assert withdrawn.withdrawals.complete(IMAGE, image, is_withdrawn=False)
    assert read_rounds(withdrawn.origin).images == {}


def test_rounds_of_a_newer_release_are_left_alone(withdrawn: Withdrawn) -> None:
    withdrawn.origin.swap_ref(ROUNDS_REF, None, b'{"version": 2}')
    with pytest.raises(exception.UnsupportedError):
        withdrawn.withdrawals.complete(IMAGE, None, is_withdrawn=True)


def test_page_lists_the_fields() -> None:
    page = pathlib.Path(__file__).parents[3] / "doc/source/reference/formats/withdrawals.rst"
    fields = (*Phase, "epoch", "image_token")
    assert all(f"``{field}``" in page.read_text() for field in fields)


@pytest.mark.parametrize(("grace", "interval"), [(0.0, 1.0), (10.0, 2.0), (3600.0, POLL_INTERVAL)])
def test_short_grace_is_looked_at_often(
    withdrawn: Withdrawn, grace: float, interval: float
) -> None:
    withdrawn.withdrawals = Withdrawals(
        withdrawn.repository, grace, SPEAKS_WITHIN, lambda: None, lambda: 4e9, withdrawn.clock
    )
    write_usage(withdrawn.origin, "h9", time="2026-10-23T07:00:00+00:00")
    withdrawn.advance()
    withdrawn.advance()
    assert withdrawn.withdrawals.due_in(IMAGE) == interval
