"""Owners, movers, a network that cuts and delays, and take-overs: every order of their calls."""

import pytest

from tests.unit.origin.replicated.exploration import HistoryError
from tests.unit.origin.replicated.move_model import (
    Design,
    Epoch,
    Host,
    Record,
    Slot,
    World,
    Write,
    check,
    explore,
)
from tests.unit.origin.replicated.move_variants import VARIANTS, EmptiedAndWritable

FIRST = Record(owner="x", epoch=Epoch(1, "a"))
"""The record while a first owner, x, serves the volume from member a."""
OWNER = Host("x", "serving", Epoch(1, "a"), acquisitions=0)
HEIR = Host("y")


SCENARIOS: dict[str, World] = {
    "owner and mover": World((OWNER._replace(acquisitions=1),), ("b",), FIRST, losses=2),
    "take-over in mid-move": World((OWNER, HEIR), ("b",), FIRST, losses=1),
    "two movers": World((OWNER,), ("b", "a"), FIRST, losses=1),
    "owner that comes back": World((OWNER._replace(acquisitions=1), HEIR), ("b",), FIRST, losses=0),
    "two movers and a take-over": World((OWNER, HEIR), ("b", "a"), FIRST, losses=0),
    "volume that nobody owned yet": World((Host("x"), HEIR), ("b",), losses=1),
}
REMOVAL = World((OWNER, HEIR), ("b",), FIRST, losses=0, removals=1)
EXTENDED: dict[str, World] = {
    "two movers, a take-over, a loss": World((OWNER, HEIR), ("b", "a"), FIRST, losses=1),
    "take-over in mid-move, two losses": World((OWNER, HEIR), ("b",), FIRST, losses=2),
    "removal and a loss": REMOVAL._replace(losses=1),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_every_order_what_was_acknowledged_is_read(scenario: str) -> None:
    states, kinds = explore(SCENARIOS[scenario], Design())
    assert states > 50
    assert any(kind.startswith("a mover assigns b") for kind in kinds)
    assert any("seals Slot(member='a'" in kind for kind in kinds), "nothing was moved"
    assert any("in Slot(member='b'" in kind for kind in kinds), "nothing was written there"


def test_removed_member_takes_nothing_with_it() -> None:
    _, kinds = explore(REMOVAL, Design())
    assert "remove a" in kinds


@pytest.mark.extended
@pytest.mark.parametrize("scenario", EXTENDED)
def test_in_many_more_orders_what_was_acknowledged_is_read(scenario: str) -> None:
    explore(EXTENDED[scenario], Design())


@pytest.mark.parametrize("variant", VARIANTS)
def test_broken_variants_are_found_out(variant: str) -> None:
    assert find_fault(VARIANTS[variant]), "no order finds it"


def test_member_that_is_emptied_and_can_be_written_to_is_found_out() -> None:
    with pytest.raises(HistoryError, match="remove a"):
        explore(REMOVAL, EmptiedAndWritable())


def test_same_slot_at_the_new_member_is_two_histories() -> None:
    """The trap that the design is made for: an owner that is cut off, and the same free slot."""
    fault = find_fault(VARIANTS["the mover switches the member of an epoch"])
    assert "was acknowledged" in fault
    assert "a mover assigns b" in fault


def find_fault(design: Design) -> str:
    """Return what the first scenario says that finds a fault; empty: none does."""
    for world in SCENARIOS.values():
        try:
            explore(world, design)
        except HistoryError as error:
            return str(error)
    return ""


# The expectation itself


@pytest.mark.parametrize(
    ("found", "problem"),
    [(("x2",), "acknowledged"), (("x2", "x1"), "acknowledged"), (("x1",), "acknowledged")],
)
def test_what_contradicts_the_history_is_refused(found: tuple[str, ...], problem: str) -> None:
    world = two_writes()
    slots = {content: slot for slot, content in world.objects}
    objects = frozenset(
        (slots["x1"]._replace(number=number), word) for number, word in enumerate(found)
    )
    with pytest.raises(HistoryError, match=problem):
        check(world._replace(objects=objects), Design())


def test_disk_that_changes_under_a_guest_is_refused() -> None:
    world = two_writes()
    check(world, Design())
    stale = world.hosts[0]._replace(view=("y1",))
    with pytest.raises(HistoryError, match="found"):
        check(world.with_host(stale), Design())


def two_writes() -> World:
    """Return the world after two writes of the first owner."""
    objects = {(Slot("a", 1, number), f"x{number + 1}") for number in range(2)}
    history = (Write("x1", 1), Write("x2", 1))
    return World((OWNER,), (), FIRST, objects=frozenset(objects), history=history)
