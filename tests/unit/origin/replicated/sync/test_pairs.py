"""The choice of pairs, compared with another formulation of the same equations."""

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest

from acstor.origin.replicated.sync.pairs import Demand, Pair, Room, choose, taking_order

PERIOD = 10.0
MEMBERS = "abcd"
ALL_PAIRS = [Pair(*one) for one in itertools.permutations(MEMBERS, 2)]


def rooms(
    network: float, disk: float = 1e9, more: Mapping[str, Room] | None = None
) -> dict[str, Room]:
    return {**{name: Room(network, disk) for name in MEMBERS}, **(more or {})}


def test_all_pairs_are_taken_where_there_is_room() -> None:
    demands = [Demand(pair, 1000 + index) for index, pair in enumerate(ALL_PAIRS)]
    choice = choose(demands, rooms(1e9), PERIOD)
    assert choice.left_bytes == 0
    assert choice.rates == {one.pair: one.size_bytes / PERIOD for one in demands}


def test_nothing_is_owed_nothing_is_taken() -> None:
    assert choose([], rooms(1.0), PERIOD).rates == {}


def test_largest_debt_takes_first_and_the_rest_shares_what_is_left() -> None:
    demands = [Demand(Pair("a", "b"), 600), Demand(Pair("a", "c"), 900)]
    choice = choose(demands, rooms(100.0), PERIOD)
    assert list(choice.rates.items()) == [(Pair("a", "c"), 90.0), (Pair("a", "b"), 10.0)]
    assert choice.left_bytes == 0, "as in Equation 2 a pair that is taken counts whole"


def test_pair_without_any_bandwidth_is_left_out() -> None:
    demands = [Demand(Pair("a", "b"), 1000), Demand(Pair("a", "c"), 900)]
    choice = choose(demands, rooms(100.0), PERIOD)
    assert choice.rates == {Pair("a", "b"): 100.0}
    assert choice.left_bytes == 900


def test_two_smaller_debts_beat_a_larger_one_that_keeps_them_out() -> None:
    """Taken one by one the largest would win: it uses up what both others need."""
    demands = [
        Demand(Pair("a", "b"), 1000),
        Demand(Pair("a", "c"), 600),
        Demand(Pair("d", "b"), 600),
    ]
    choice = choose(demands, rooms(100.0), PERIOD)
    assert choice.rates == {Pair("a", "c"): 60.0, Pair("d", "b"): 60.0}
    assert choice.left_bytes == 1000


def test_pairs_that_a_move_needs_come_first() -> None:
    demands = [
        Demand(Pair("a", "b"), 10_000),
        Demand(Pair("a", "c"), 1000, is_needed=True),
    ]
    choice = choose(demands, rooms(100.0), PERIOD)
    assert choice.rates == {Pair("a", "c"): 100.0}
    assert [one.pair for one in taking_order(demands)] == [Pair("a", "c"), Pair("a", "b")]


def test_slower_of_network_and_disk_decides() -> None:
    demands = [Demand(Pair("a", "b"), 1000)]
    assert choose(demands, rooms(100.0, disk=30.0), PERIOD).rates[Pair("a", "b")] == 30.0
    slow = rooms(100.0, more={"b": Room(20.0, 1e9)})
    assert choose(demands, slow, PERIOD).rates[Pair("a", "b")] == 20.0


def test_power_is_not_exceeded() -> None:
    demands = [
        Demand(Pair("a", "b"), 500, power_watts=30.0),
        Demand(Pair("c", "a"), 400, power_watts=30.0),
        Demand(Pair("c", "d"), 300, power_watts=30.0),
    ]
    choice = choose(demands, rooms(1e9, more={"a": Room(1e9, 1e9, power_watts=50.0)}), PERIOD)
    assert set(choice.rates) == {Pair("a", "b"), Pair("c", "d")}
    assert choice.left_bytes == 400


@pytest.mark.parametrize(
    "demands",
    [
        [Demand(Pair("a", "b"), 1)] * 2,
        [Demand(Pair("a", "a"), 1)],
        [Demand(Pair("a", "b"), 0)],
        [Demand(Pair("a", "e"), 1)],
        [Demand(Pair("a", f"m{number}"), 1) for number in range(13)],
    ],
)
def test_what_makes_no_sense_is_refused(demands: Sequence[Demand]) -> None:
    more = {f"m{number}": Room(1.0, 1.0) for number in range(13)}
    with pytest.raises(ValueError, match=r"pair|demand|room"):
        choose(demands, rooms(1.0, more=more), PERIOD)


def rates_by_equations(
    chosen: Sequence[Demand], present: Mapping[str, Room]
) -> dict[Pair, float] | None:
    """Return rates by Equations 5 and 6 as printed: one bandwidth after the other; None: none."""
    rates: dict[Pair, float] = {}
    for one in chosen:

        def remaining(member: str, name: str) -> float:
            used = sum(rate for pair, rate in rates.items() if member in pair)
            return float(getattr(present[member], name)) - used

        required = one.size_bytes / PERIOD  # Equation 5
        network, disk = (
            min(required, remaining(one.pair.source, name), remaining(one.pair.target, name))
            for name in ("network", "disk")
        )  # Equation 6
        rates[one.pair] = min(network, disk)
        if rates[one.pair] <= 0:
            return None
    return rates


@pytest.mark.parametrize("seed", range(12))
def test_no_subset_that_holds_the_equations_is_better(seed: int) -> None:
    choice = random.Random(seed)
    pairs = choice.sample(ALL_PAIRS, 6)
    demands = [
        Demand(pair, choice.randrange(1, 3000), choice.random() < 0.2, choice.uniform(0, 20))
        for pair in pairs
    ]
    present = {
        name: Room(choice.uniform(20, 300), choice.uniform(20, 300), choice.uniform(10, 50))
        for name in MEMBERS
    }
    found = choose(demands, present, PERIOD)
    best = None
    for count in range(len(demands) + 1):
        for subset in itertools.combinations(taking_order(demands), count):
            power = {
                name: sum(one.power_watts for one in subset if name in one.pair) for name in MEMBERS
            }
            rates = rates_by_equations(subset, present)
            if rates is None or any(power[one] > present[one].power_watts for one in MEMBERS):
                continue
            left = [one for one in demands if one not in subset]
            value = (
                sum(one.size_bytes for one in left if one.is_needed),
                sum(one.size_bytes for one in left),
            )
            if best is None or value < best:
                best = value
    assert best is not None
    assert found.left_bytes == best[1]
    for name in MEMBERS:  # Equation 3
        used = sum(rate for pair, rate in found.rates.items() if name in pair)
        assert used <= min(present[name].network, present[name].disk) + 1e-6
