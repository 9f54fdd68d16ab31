"""Every combination of what Glance says, what the image registry says and what hosts have."""

import dataclasses
import itertools
from collections.abc import Iterator

import pytest

from acstor.registrar.decision import Decision, Kind
from acstor.registrar.planning import Plan, Situation, plan, verdict_key
from acstor.repository.images import image_registry
from acstor.repository.images.image_registry import TRANSITIONS, Entry, EntryEvent, EntryState
from testbed.doubles.registrar_cloud import content_of, describe

NOW = 1_000_000.0
PAST, FUTURE = image_registry.format_time(NOW - 60), image_registry.format_time(NOW + 60)
IMAGE = describe("00000000-0000-4000-8000-000000000001", content_of(1))
CHECKSUM, OTHER = str(IMAGE.checksum), "sha512:" + "0" * 128

REGISTER = Decision(Kind.REGISTER)
LEAVE = Decision(Kind.LEAVE, "left")
HARM = Decision(Kind.LEAVE, "a kernel", is_harmful=True)
DEACTIVATED = Decision(Kind.WITHDRAW, "deactivated")
GONE = Decision(Kind.WITHDRAW, "gone", is_gone=True)


def entries() -> Iterator[Entry | None]:
    yield None
    for state, checksum in itertools.product(EntryState, (CHECKSUM, OTHER, None)):
        yield Entry(state, checksum=checksum)
    for retry_at, judged in itertools.product(
        (PAST, FUTURE, None), (verdict_key(IMAGE), "x", None)
    ):
        yield Entry(EntryState.FAILED, checksum=CHECKSUM, retry_at=retry_at, judged=judged)
        yield Entry(EntryState.LEFT, checksum=CHECKSUM, judged=judged)


def situations() -> Iterator[Situation]:
    works = [(False, None), (True, verdict_key(IMAGE)), (True, "raw other")]
    for decision, entry, published, (is_at_work, key) in itertools.product(
        (REGISTER, LEAVE, HARM, DEACTIVATED, GONE), entries(), (None, "", CHECKSUM, OTHER), works
    ):
        image = None if decision.is_gone else IMAGE
        yield Situation(image, decision, entry, published, is_at_work, key)


ALL = list(situations())


def follow(situation: Situation) -> tuple[Plan, Situation]:
    """Return the plan, and the situation after it was carried out."""
    made = plan(situation, NOW)
    entry = situation.entry
    if made.event is not None:
        state = image_registry.next_state(entry.state if entry else None, made.event)
        checksum = entry.checksum if entry and made.event is EntryEvent.WITHDRAW else CHECKSUM
        entry = None if state is None else Entry(state, made.reason, checksum=checksum)
    return made, dataclasses.replace(situation, entry=entry)


def test_every_plan_is_a_transition_of_the_table() -> None:
    for situation in ALL:
        made = plan(situation, NOW)
        if made.event is not None:
            before = situation.entry.state if situation.entry else None
            assert (before, made.event) in TRANSITIONS, situation


def test_every_plan_is_carried_out_once() -> None:
    """The next look finds nothing left to do, but to start what is to be started."""
    for situation in ALL:
        made, after = follow(situation)
        for _ in range(2):  # a failure whose time has come is first accepted
            made, after = follow(after)
        assert made.event is None, (situation, made)


def test_nothing_changes_while_a_registration_runs_but_its_end() -> None:
    for situation in ALL:
        if situation.is_at_work:
            made = plan(situation, NOW)
            assert made.event is None
            assert not made.start
            is_wanted = situation.decision is REGISTER and situation.at_work_on == verdict_key(
                IMAGE
            )
            assert bool(made.cancel) != is_wanted


def test_only_what_is_to_be_registered_is_started() -> None:
    started = [situation for situation in ALL if plan(situation, NOW).start]
    assert {situation.decision for situation in started} == {REGISTER}
    assert all(not situation.is_at_work for situation in started)


def test_entry_is_only_forgotten_when_hosts_do_not_have_the_image() -> None:
    forgotten = [s for s in ALL if plan(s, NOW).event is EntryEvent.FORGET]
    assert forgotten
    assert all(s.published is None and s.decision is GONE for s in forgotten)


def test_image_without_an_entry_is_never_withdrawn() -> None:
    for situation in ALL:
        if situation.entry is None and situation.decision is not REGISTER and situation.published:
            assert plan(situation, NOW) == Plan(cancel=plan(situation, NOW).cancel)


def test_other_content_is_never_called_registered() -> None:
    for situation in ALL:
        made, after = follow(situation)
        if made.event is EntryEvent.RESTORE and after.entry is not None:
            assert situation.published == CHECKSUM or (
                situation.published == ""
                and situation.entry is not None
                and situation.entry.checksum == CHECKSUM
            )


@pytest.mark.parametrize(
    ("entry", "published", "event", "start"),
    [
        (None, None, EntryEvent.ACCEPT, True),
        (None, CHECKSUM, EntryEvent.RESTORE, False),
        (None, "", EntryEvent.ACCEPT, True),  # by hand, without a checksum: to be verified
        (Entry(EntryState.WAITING), None, None, True),
        (Entry(EntryState.REGISTERING), None, EntryEvent.FAIL, False),  # nobody is at work
        (Entry(EntryState.REGISTERING), CHECKSUM, EntryEvent.RESTORE, False),
        (Entry(EntryState.REGISTERED, checksum=CHECKSUM), CHECKSUM, None, False),
        (Entry(EntryState.REGISTERED, checksum=f"md5:{IMAGE.md5}"), "", None, False),
        (Entry(EntryState.REGISTERED, checksum=CHECKSUM), None, EntryEvent.ACCEPT, True),
        (Entry(EntryState.REGISTERED, checksum=OTHER), OTHER, EntryEvent.WITHDRAW, False),
        (Entry(EntryState.WITHDRAWN, checksum=CHECKSUM), CHECKSUM, EntryEvent.RESTORE, False),
        (Entry(EntryState.WITHDRAWN, checksum=OTHER), OTHER, EntryEvent.WITHDRAW, False),
        (Entry(EntryState.WITHDRAWN, checksum=OTHER), None, EntryEvent.ACCEPT, True),
        (Entry(EntryState.LEFT), None, EntryEvent.ACCEPT, True),
        (Entry(EntryState.LEFT, judged=verdict_key(IMAGE)), None, None, False),
        (Entry(EntryState.FAILED, retry_at=FUTURE), None, None, False),
        (Entry(EntryState.FAILED, retry_at=PAST), None, EntryEvent.ACCEPT, True),
        (Entry(EntryState.FAILED, judged=verdict_key(IMAGE)), None, None, False),
        (Entry(EntryState.FAILED, judged="qcow2 x"), None, EntryEvent.ACCEPT, True),
    ],
)
def test_image_to_register(
    entry: Entry | None, published: str | None, event: EntryEvent | None, start: bool
) -> None:
    made = plan(Situation(IMAGE, REGISTER, entry, published, is_at_work=False), NOW)
    assert (made.event, made.start) == (event, start)


def test_only_what_would_do_harm_goes_without_grace() -> None:
    entry = Entry(EntryState.REGISTERED, checksum=OTHER)
    for decision, is_urgent in (
        (REGISTER, True),
        (HARM, True),
        (LEAVE, False),
        (DEACTIVATED, False),
        (GONE, False),
    ):
        made = plan(Situation(IMAGE, decision, entry, OTHER, is_at_work=False), NOW)
        assert (made.event, made.is_urgent) == (EntryEvent.WITHDRAW, is_urgent)


def test_what_begins_to_do_harm_loses_its_grace() -> None:
    entry = Entry(EntryState.WITHDRAWN, LEAVE.reason, checksum=CHECKSUM)
    assert plan(Situation(IMAGE, LEAVE, entry, CHECKSUM, is_at_work=False), NOW) == Plan()
    made = plan(Situation(IMAGE, HARM, entry, CHECKSUM, is_at_work=False), NOW)
    assert (made.event, made.is_urgent) == (EntryEvent.WITHDRAW, True)
