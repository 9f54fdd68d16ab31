"""Volumes of the level ``strong``: every order of writes, take-overs, members taken out and in."""

import dataclasses

import pytest

from tests.unit.origin.replicated.exploration import HistoryError
from tests.unit.origin.replicated.strong_model import (
    MEMBERS,
    Design,
    Epoch,
    Host,
    Record,
    World,
    explore,
)

FIRST = Record(owner="x", epoch=Epoch(1, MEMBERS))
"""The record while a first owner, x, serves the volume from both members."""
OWNER = Host("x", "serving", Epoch(1, MEMBERS), acquisitions=0, changes=0)
HEIR = Host("y", changes=0)
SECOND_HEIR = Host("z", changes=0)

SCENARIOS: dict[str, World] = {
    "take-over": World((OWNER, HEIR), FIRST, losses=1),
    "two take-overs": World((OWNER, HEIR, SECOND_HEIR), FIRST),
    "member taken out and in": World((OWNER._replace(changes=3),), FIRST, losses=2),
    "take-over, member out and in": World((OWNER._replace(changes=2), HEIR), FIRST, losses=1),
    "heir that goes on alone": World((OWNER, HEIR._replace(changes=1), SECOND_HEIR), FIRST),
}
VARIANTS: dict[str, Design] = {
    "a write is acknowledged by the first member": Design(acknowledges_all=False),
    "a member is left out before the record says so": Design(swaps_first=False),
    "what is before the seal stays in one member": Design(fills=False),
    "a seal in another member is not heeded": Design(heeds_all_seals=False),
    "members that were not reached count": Design(counts_reached=False),
    "a member is taken in as it is": Design(copies_back=False),
    "a member is written to only once it is taken in": Design(writes_first=False),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_every_order_each_member_alone_has_what_was_acknowledged(scenario: str) -> None:
    states, names = explore(SCENARIOS[scenario], Design(words=1 if "two" in scenario else 2))
    assert states > 50
    assert any("acknowledges" in name for name in names)


@pytest.mark.parametrize("variant", VARIANTS)
def test_broken_variants_are_found_out(variant: str) -> None:
    for world in SCENARIOS.values():
        try:
            explore(world, dataclasses.replace(VARIANTS[variant], words=2))
        except HistoryError:
            return
    pytest.fail("no order finds it")
