"""Estimates from sketches, against what hosts really share."""

import math
import random

import pytest

from acstor.policy.similarity import (
    RECEIVERS_MAX,
    estimate,
    most_similar,
    sketch_of,
)
from acstor.telemetry.host_state_details import SKETCH_HASHES_MAX


def hashes(chance: random.Random, count: int) -> set[int]:
    return {chance.getrandbits(64) for _ in range(count)}


@pytest.mark.parametrize("shared", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_estimate_has_the_error_that_it_states(shared: float) -> None:
    chance = random.Random(7)
    errors = []
    for _ in range(30):
        both = hashes(chance, int(3000 * shared))
        first, second = (both | hashes(chance, 3000 - len(both)) for _ in range(2))
        found = estimate(sketch_of(first), sketch_of(second))
        truth = len(first & second) / len(first | second)
        bound = math.sqrt(truth * (1 - truth) / SKETCH_HASHES_MAX)
        errors.append(found.jaccard - truth)
        assert found.error <= 0.5 / math.sqrt(SKETCH_HASHES_MAX) + 1e-9
        assert abs(found.jaccard - truth) <= 4 * bound + 1e-9
    deviation = math.sqrt(sum(error**2 for error in errors) / len(errors))
    assert deviation <= 1.5 * bound + 1e-9
    assert abs(sum(errors) / len(errors)) <= bound + 1e-9  # no bias


def test_small_hosts_are_known_exactly() -> None:
    found = estimate(sketch_of({1, 2, 3, 4}), sketch_of({3, 4, 5}))
    assert (found.jaccard, found.error) == (0.4, 0.0)
    assert found.containment == pytest.approx(0.5)


def test_of_a_small_and_a_large_host_containment_tells_more() -> None:
    chance = random.Random(1)
    large = hashes(chance, 20_000)
    small = set(sorted(large, key=lambda _: chance.random())[:2000])
    assert estimate(sketch_of(small), sketch_of(large)).containment > 0.6
    assert estimate(sketch_of(large), sketch_of(small)).containment < 0.2


def test_nothing_is_similar_to_nothing() -> None:
    assert estimate(sketch_of(()), sketch_of(())).jaccard == 0.0
    assert estimate(sketch_of(()), sketch_of({1})).containment == 0.0
    assert most_similar({"a": sketch_of({1})}, ["a", "b"], ["b"]) == ()


def test_each_giver_gets_the_most_similar_receivers_first() -> None:
    chance = random.Random(3)
    base = sorted(hashes(chance, 1000))
    sketches = {
        f"h{n:02}": sketch_of({*base[: 50 * n], *hashes(chance, 1000 - 50 * n)})
        for n in range(1, 20)
    }
    sketches["giver"] = sketch_of(base)
    found = most_similar(sketches, ["giver"], [*sketches])
    assert len(found) == RECEIVERS_MAX
    assert {giver for giver, _, _ in found} == {"giver"}
    receivers = [receiver for _, receiver, _ in found]
    assert "giver" not in receivers
    assert set(receivers[:3]) <= {"h19", "h18", "h17", "h16"}
    assert [share for _, _, share in found] == sorted((each[2] for each in found), reverse=True)
