"""The policy in a closed loop with what it causes: it settles, and does not chase itself."""

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acstor.policy.evaluation_result import Reason
from acstor.policy.settings import PolicySettings
from tests.unit.policy.closed_loop import Loop

COLLECTIONS = 40
LEVELS = st.lists(st.floats(0.0, 1.2), min_size=2, max_size=40)
POLICIES = st.sampled_from(["equation1", "headroom"])
DEMANDS = st.floats(0.0, 0.6)


@settings(max_examples=150, deadline=None)
@example([1.0, 1.0], "headroom", 0.0, False, 0)  # what is left of both links is noise
@given(LEVELS, POLICIES, DEMANDS, st.booleans(), st.integers(0, 1 << 32))
def test_steady_uneven_load_needs_at_most_two_changes_after_the_first(
    levels: list[float], policy: str, demand: float, is_elastic: bool, seed: int
) -> None:
    noise = random.Random(seed)
    loop = Loop(PolicySettings(weights=policy), demand, is_elastic)
    loop.run(lambda _: [level * noise.uniform(0.97, 1.03) for level in levels], COLLECTIONS)
    assert len(loop.changes) <= 3, [
        (at, each.reason, each.moved_share) for at, each in loop.changes
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 1.2), st.floats(0.0, 0.5), st.integers(1, 7)), min_size=2,
             max_size=30),
    POLICIES,
    st.floats(0.0, 0.2),
    st.booleans(),
)  # fmt: skip
def test_square_waves_shorter_than_the_trigger_change_nothing(
    waves: list[tuple[float, float, int]], policy: str, demand: float, is_elastic: bool
) -> None:
    """Each host is busy for one collection and then not busy for one or more, each at its own."""

    def extra(number: int) -> list[float]:
        return [
            high if number % (pause + 1) == phase % (pause + 1) else min(low, 0.5)
            for phase, (high, low, pause) in enumerate(waves)
        ]

    loop = Loop(PolicySettings(weights=policy), demand, is_elastic)
    assert loop.run(extra, COLLECTIONS) == []


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.integers(2, 40),
    POLICIES,
    DEMANDS,
    st.floats(0.01, 1.0),
    st.integers(0, 5),
)
def test_whatever_the_load_does_changes_are_bounded_and_rare(
    seed: int, hosts: int, policy: str, demand: float, moved_share_max: float, cool_down: int
) -> None:
    chance = random.Random(seed)
    options = PolicySettings(weights=policy, moved_share_max=moved_share_max, cool_down=cool_down)
    loop = Loop(options, demand)
    loop.run(lambda _: [chance.choice((0.0, 0.3, 0.9, 2.0)) for _ in range(hosts)], COLLECTIONS)
    changes = loop.changes
    for (earlier, _), (later, _) in itertools.pairwise(changes):
        assert later - earlier > cool_down
    for _, outcome in changes:
        assert outcome.moved_share <= moved_share_max + 1e-3
        assert outcome.decision is not None
        assert len(outcome.decision.weights) == hosts
        for weight in outcome.decision.weights.values():
            assert options.weight_floor <= weight / 10_000 + 1e-3
            assert weight / 10_000 <= options.weight_ceiling + 1e-3


@pytest.mark.parametrize("policy", ["equation1", "headroom"])
def test_even_load_is_left_alone_however_heavy(policy: str) -> None:
    for level in (0.0, 0.5, 0.85, 1.0):
        loop = Loop(PolicySettings(weights=policy), 0.3)
        assert loop.run(lambda _, level=level: [level] * 16, COLLECTIONS) == []  # type: ignore[misc]


@pytest.mark.parametrize("policy", ["equation1", "headroom"])
def test_overload_is_relieved_within_three_collections_and_undone_when_it_is_over(
    policy: str,
) -> None:
    def extra(number: int) -> list[float]:
        return [0.9 if 5 <= number < 30 else 0.05] + [0.05] * 15

    loop = Loop(PolicySettings(weights=policy), 0.2)
    (first, relief), (last, back) = loop.run(extra, 60)
    assert first == 6  # the second collection that shows it
    assert relief.reason is Reason.OVERLOAD
    assert relief.decision is not None
    assert relief.decision.weight_of("h0") < 2500
    assert last == 30 + PolicySettings().quiet_period - 1
    assert back.reason is Reason.QUIET
    assert back.decision is not None
    assert set(back.decision.weights.values()) == {10_000}


def test_steady_uneven_load_without_overload_is_left_alone() -> None:
    """Section 3.6: if none of the hosts is overloaded, I/O is not affected."""
    loop = Loop(PolicySettings(), 0.05)
    assert loop.run(lambda _: [0.6, 0.3, 0.1, 0.0], COLLECTIONS) == []


def test_busy_by_the_data_plane_alone_is_no_overload() -> None:
    loop = Loop(PolicySettings(), 0.95)
    assert loop.run(lambda _: [0.02] * 8, COLLECTIONS) == []


@pytest.mark.extended
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("noise", "exceptions_max"), [(0.03, 0), (0.05, 6), (0.1, 60)])
def test_thousands_of_steady_patterns(noise: float, exceptions_max: int) -> None:
    """With noise of a tenth, spare bandwidth of nearly full links is mostly noise: few settle late.

    Equation (1) settles always.
    """
    late = 0
    for seed in range(2000):
        chance = random.Random(seed)
        mean, variation = chance.uniform(0.1, 0.9), chance.uniform(0.0, 1.5)
        levels = [
            max(0.0, chance.gauss(mean, mean * variation))
            for _ in range(chance.choice((2, 3, 8, 16, 32, 48)))
        ]
        policy = chance.choice(("equation1", "headroom"))
        loop = Loop(PolicySettings(weights=policy), chance.uniform(0.0, 0.6), seed % 2 == 0)
        loop.run(
            lambda _, levels=levels, chance=chance: [  # type: ignore[misc]
                level * chance.uniform(1 - noise, 1 + noise) for level in levels
            ],
            COLLECTIONS,
        )
        if len(loop.changes) > 3:
            late += 1
            assert policy == "headroom", seed
    assert late <= exceptions_max
