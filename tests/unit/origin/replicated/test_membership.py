"""Stores that become members, and are refused where they are not what they were."""

import copy

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member_records import read_mark, read_members
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent, MemberState
from tests.unit.origin.replicated.stores import away


@pytest.fixture
def stores() -> dict[str, base.RefStore]:
    return {"home": MemoryOrigin(), "other": MemoryOrigin()}


@pytest.fixture
def membership(stores: dict[str, base.RefStore]) -> Membership:
    one = Membership("home", stores)
    one.create()
    return one


def backup(store: base.RefStore) -> MemoryOrigin:
    """Return a copy of a store's refs."""
    assert isinstance(store, MemoryOrigin)
    restored = MemoryOrigin()
    restored._refs = copy.copy(store._refs)
    return restored


def test_new_members_are_to_be_filled_and_accepted(membership: Membership) -> None:
    record, refused = membership.check()
    assert not refused
    assert {name: entry.state for name, entry in record.members.items()} == {
        "home": MemberState.ACTIVE,
        "other": MemberState.JOINING,
    }
    assert membership.create() == record, "repeating it changes nothing"


@pytest.mark.parametrize("call", range(1, 4))
@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
def test_creation_that_was_cut_off_is_gone_on_with(call: int, effect: Effect) -> None:
    fault = Fault(Operation.SWAP_REF, effect)
    stores = {name: FaultyOrigin(MemoryOrigin()) for name in ("home", "other")}
    victim, own_call = ("home", 1) if call == 1 else ("other", 1) if call == 2 else ("home", 2)
    stores[victim].faults = [
        Fault(fault.operation, fault.effect, call=own_call),
    ]
    with pytest.raises(exception.UnavailableError):
        Membership("home", stores).create()
    Membership("home", stores).create()
    _, refused = Membership("home", stores).check()
    assert not refused


def test_restored_backup_is_refused(
    membership: Membership, stores: dict[str, base.RefStore]
) -> None:
    old = backup(stores["other"])
    assert membership.advance("other") == 2
    assert not membership.check()[1]
    _, refused = Membership("home", {**stores, "other": old}).check()
    assert isinstance(refused["other"], exception.FencedError)
    assert "backup" in str(refused["other"])
    with pytest.raises(exception.FencedError):
        Membership("home", {**stores, "other": old}).advance("other")


def test_restored_home_is_refused(membership: Membership, stores: dict[str, base.RefStore]) -> None:
    old = backup(stores["home"])
    for _ in range(2):
        membership.advance("home")
        membership.advance("other")
    _, refused = Membership("home", {**stores, "home": old}).check()
    assert "other" in refused


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
@pytest.mark.parametrize("victim", ["home", "other"])
def test_growth_that_was_cut_off_refuses_nobody(
    membership: Membership, stores: dict[str, base.RefStore], victim: str, effect: Effect
) -> None:
    faulty = FaultyOrigin(
        stores[victim],  # type: ignore[arg-type]
        [Fault(Operation.SWAP_REF, effect, call=1)],
    )
    with pytest.raises(exception.UnavailableError):
        Membership("home", {**stores, victim: faulty}).advance("other")
    record, refused = membership.check()
    assert not refused
    mark, _ = read_mark(stores["other"])
    assert mark is not None
    assert mark.generation - record.members["other"].generation in (0, 1)
    assert membership.advance("other") >= 2
    assert not membership.check()[1]


def test_other_home_is_refused(membership: Membership, stores: dict[str, base.RefStore]) -> None:
    with pytest.raises(exception.ConfigurationError, match="configured first"):
        Membership("other", stores).check()


def test_stores_by_wrong_names_are_refused(
    membership: Membership, stores: dict[str, base.RefStore]
) -> None:
    empty = {**stores, "other": MemoryOrigin()}
    assert "no member" in str(Membership("home", empty).check()[1]["other"])
    twice = {**stores, "other": stores["home"]}
    assert "is member home" in str(Membership("home", twice).check()[1]["other"])
    unreachable = {**stores, "other": away(MemoryOrigin())}
    refused = Membership("home", unreachable).check()[1]
    assert isinstance(refused["other"], exception.UnavailableError)


def test_member_of_another_origin_does_not_join(
    membership: Membership, stores: dict[str, base.RefStore]
) -> None:
    foreign: dict[str, base.RefStore] = {"home": MemoryOrigin(), "third": MemoryOrigin()}
    Membership("home", foreign).create()
    with pytest.raises(exception.ConflictError, match="already"):
        Membership("home", {**stores, "third": foreign["third"]}).join("third")
    with pytest.raises(exception.ConflictError, match="already"):
        Membership("home", {"home": MemoryOrigin(), "third": foreign["third"]}).create()


def test_member_joins_is_filled_drained_and_removed(
    membership: Membership, stores: dict[str, base.RefStore]
) -> None:
    stores["third"] = MemoryOrigin()
    states = [membership.join("third").members["third"].state]
    for event in (MemberEvent.FILLED, MemberEvent.DRAIN, MemberEvent.REMOVE):
        states.append(membership.change("third", event).members["third"].state)
    assert states == ["joining", "active", "draining", "removed"]
    assert "removed" in str(membership.check()[1]["third"])
    with pytest.raises(exception.ConflictError, match="or was"):
        membership.join("third")


def test_home_is_not_taken_away(membership: Membership, stores: dict[str, base.RefStore]) -> None:
    for event in (MemberEvent.DRAIN, MemberEvent.FAIL):
        with pytest.raises(exception.ConflictError, match="home"):
            membership.change("home", event)
    with pytest.raises(exception.NotFoundError):
        membership.change("none", MemberEvent.DRAIN)
    assert read_members(stores["home"])[0] is not None
