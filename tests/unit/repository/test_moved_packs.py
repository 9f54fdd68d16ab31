"""Following moves: no further than readers do, and whatever else is needed of the packs between."""

import dataclasses
from collections.abc import Mapping
from typing import cast

import pytest

from acstor import exception, native
from acstor.repository import layout, moved_packs
from acstor.repository.moved_packs import HOPS_MAX, Runs


def name(number: int) -> bytes:
    return bytes([number]) * 32


@dataclasses.dataclass(frozen=True)
class MovedTo:
    """All of a pack was moved, to the same places of others."""

    packs: tuple[bytes, ...]

    def targets(self) -> list[bytes]:
        return list(self.packs)

    def follow(self, runs: Runs) -> tuple[list[tuple[bytes, Runs]], Runs]:
        return [(pack, runs) for pack in self.packs], []


def followed(
    needed: set[int], moves: Mapping[int, tuple[int, ...]], present: set[int]
) -> moved_packs.Followed:
    lists = {name(pack): MovedTo(tuple(map(name, targets))) for pack, targets in moves.items()}
    return moved_packs.follow(
        {name(number): [(number, number + 1)] for number in needed},
        lambda pack: cast(native.MovedPack | None, lists.get(pack)),
        {name(number) for number in present}.__contains__,
    )


CHAIN = {number: (number + 1,) for number in range(HOPS_MAX + 1)}
LAST = HOPS_MAX + 1


@pytest.mark.parametrize("others", [set(), set(range(1, LAST))], ids=["alone", "all needed"])
def test_pack_stays_needed_that_readers_would_have_to_follow_too_far(others: set[int]) -> None:
    found = followed({0} | others, CHAIN, {0, LAST})
    assert name(0) in found.needed
    assert name(0) not in found.served


def test_copies_that_are_gone_are_not_missed_where_the_pack_is_there() -> None:
    assert set(followed({0}, {0: (1,), 1: (2,)}, {0}).needed) == {name(0)}
    assert set(followed({0}, {0: (1,), 1: (2,)}, set()).needed) == {name(2)}
    assert set(followed({0, 1}, {0: (1,)}, {0}).needed) == {name(0), name(1)}


def test_packs_that_name_each_other_are_refused() -> None:
    with pytest.raises(exception.CorruptError, match="name each other"):
        followed({0, 1}, {0: (1,), 1: (0,)}, {0, 1})


def test_pack_relies_on_each_object_once() -> None:
    found = followed({0}, {0: (1, 2), 1: (2, 3), 2: (3,)}, {0, 3})
    lists = {layout.moved_name(name(number).hex()) for number in range(3)}
    assert found.relied_on(name(0)).keys() == lists | {name(3).hex()}
    found.targets[name(2)].add(name(1))
    assert found.relied_on(name(0)).keys() == lists | {name(3).hex()}, "in a circle, too"


def test_pack_is_served_as_far_as_readers_follow() -> None:
    found = followed(set(range(1, LAST)), CHAIN, {1, LAST})
    assert found.served == {name(number) for number in range(1, LAST)}
    assert set(found.needed) == {name(LAST)}
    assert found.hops[name(LAST)] == HOPS_MAX
