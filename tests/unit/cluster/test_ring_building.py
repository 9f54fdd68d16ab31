"""Construction of the next ring."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor.cluster.ring.building import (
    EQUAL_WEIGHT,
    RING_WEIGHT_MAX,
    as_before,
    next_ring,
    weighted,
)
from acstor.cluster.ring.decision import WEIGHT_MAX, Decision
from acstor.native import RingHost

DECISION = Decision(1, 1, "", 0, "equation1")


def hosts(*weights: int) -> list[RingHost]:
    return [RingHost(f"h{n}", f"10.0.0.{n}:1", weight) for n, weight in enumerate(weights)]


def decided(**weights: int) -> Decision:
    return dataclasses.replace(DECISION, weights=weights)


def weights_of(found: list[RingHost]) -> list[int]:
    return [host.weight for host in found]


def test_without_a_decision_weights_are_as_they_were() -> None:
    assert weighted(hosts(100, 0, 7), None) == hosts(100, 0, 7)


def test_weights_follow_the_decision_and_drained_hosts_stay_drained() -> None:
    found = weighted(hosts(100, 100, 0, 100), decided(h0=2500, h1=17500, h2=10000))
    assert weights_of(found) == [2500, 17500, 0, 10000]  # h3 is not named: the mean


def test_capacities_are_multiplied() -> None:
    found = weights_of(weighted(hosts(1000, 3000), decided(h0=5000, h1=10000)))
    assert found[0] * 6 == found[1]


def test_decision_that_leaves_nobody_is_not_followed() -> None:
    assert weighted(hosts(100, 0), decided(h0=0, h1=10000)) == hosts(100, 0)


@given(
    st.lists(st.integers(0, RING_WEIGHT_MAX), min_size=1, max_size=6).filter(any),
    st.lists(st.integers(1, WEIGHT_MAX), min_size=6, max_size=6),
)
def test_weights_fit_into_a_ring_and_none_is_lost(base: list[int], decisions: list[int]) -> None:
    decision = dataclasses.replace(
        DECISION, weights={f"h{n}": weight for n, weight in enumerate(decisions)}
    )
    found = weights_of(weighted(hosts(*base), decision))
    assert all((weight > 0) == (former > 0) for weight, former in zip(found, base, strict=True))
    assert max(found) <= RING_WEIGHT_MAX


def test_ring_gives_to_the_most_similar_first() -> None:
    first = next_ring(hosts(*[EQUAL_WEIGHT] * 4), None, None, vnode_count=1024, seed=1)
    decision = dataclasses.replace(
        decided(h0=2000, h1=12667, h2=12667, h3=12666),
        similarity=(("h0", "h2", 0.9), ("h0", "gone", 0.8)),
    )
    second = next_ring(weighted(first.hosts, decision), first, decision)
    assert second.generation == 2
    before, after = first.vnode_owners(), second.vnode_owners()
    received = {2: 0}
    for at in range(0, len(before), 2):
        giver, receiver = before[at : at + 2], after[at : at + 2]
        if giver != receiver:
            index = int.from_bytes(receiver, "little")
            received[index] = received.get(index, 0) + 1
    grown = [host.vnodes - 256 for host in second.hosts]
    assert received == {n: grown[n] for n in (1, 2, 3)}
    assert second.moved_share(first) == pytest.approx(first.least_moved_share(second.hosts))


def test_who_cannot_read_the_decision_keeps_the_weights_of_the_ring() -> None:
    decision = decided(h0=2000, h1=18000)
    ring = next_ring(weighted(hosts(100, 100), decision), None, decision, vnode_count=64)
    assert weights_of(as_before(hosts(100, 100, 100), ring)) == [2000, 18000, 10000]
    assert weights_of(as_before(hosts(0, 100), ring)) == [0, 18000]
