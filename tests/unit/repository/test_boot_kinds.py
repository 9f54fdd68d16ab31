"""Kinds of boots: which boots are alike, the order in which a kind reads, and liars among them."""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acstor.repository.images import boot_kinds
from acstor.repository.images.boot_kinds import (
    BOOTS_MAX,
    KINDS_MAX,
    LASTING_REPORTS,
    LONGEST_FACTOR,
    Boot,
    Kind,
    merged,
    overlap,
    used,
)

CHUNKS = 400


def boot_of(order: Sequence[int], host: str = "h1", number: int = 1) -> Boot:
    return Boot(host, number, tuple(order))


def learnt(boots: Sequence[Boot]) -> tuple[Kind, ...]:
    kinds: tuple[Kind, ...] = ()
    for report, boot in enumerate(boots, 1):
        kinds = merged(kinds, boot, report)
    return kinds


def noisy(order: Sequence[int], rng: random.Random, *, reach: int = 10) -> list[int]:
    """Return an order as the next boot of the same guest has it: some reads change places."""
    ranked = sorted((rank + rng.uniform(0, reach), chunk) for rank, chunk in enumerate(order))
    return [chunk for _, chunk in ranked]


def worst_prefix(found: Sequence[int], true: Sequence[int]) -> float:
    """Return the largest share of the chunks that a prefix of the order lacks of the true one's."""
    missing = [len(set(true[:at]) - set(found[:at])) for at in range(1, len(true) + 1)]
    return max(missing) / len(true)


def test_boots_that_overlap_are_one_kind() -> None:
    first, other = list(range(100)), list(range(500, 600))
    kinds = learnt(
        [
            boot_of(first, "h1"),
            boot_of([*first[:80], 1000], "h2"),  # 80 of 101
            boot_of(other, "h2", 2),
            boot_of([*first[:50], *range(2000, 2010)], "h3"),  # 50 of 90: too few
        ]
    )
    assert sorted(len(kind.boots) for kind in kinds) == [1, 1, 2]
    assert overlap([], []) == 0


def test_order_is_that_of_the_mean_ranks() -> None:
    rng = random.Random(1)
    true = rng.sample(range(10_000), CHUNKS)
    boots = [boot_of(noisy(true, rng), f"h{number}", number) for number in range(10)]
    (kind,) = learnt(boots)
    assert worst_prefix(kind.order(), true) < 0.02


def test_chunk_that_few_boots_read_is_left_out() -> None:
    order = list(range(100))
    boots = [boot_of([*order, 1000 + number], f"h{number}", number) for number in range(12)]
    boots += [boot_of([*order, 5000], f"h{number}", number) for number in range(12, 16)]
    (kind,) = learnt(boots)
    assert set(kind.order()) == {*order, 5000}, "4 of 16 are enough"


def test_chunk_counts_when_two_hosts_read_it() -> None:
    order = list(range(100))
    boots = [boot_of([*order, 1000], "h1"), boot_of([*order, 1000], "h1", 2)]
    (kind,) = learnt(boots)
    assert 1000 in kind.order(), "a lone host is believed"
    (kind,) = learnt([*boots, boot_of(order, "h2")])
    assert set(kind.order()) == set(order)


def reversed_order(order: list[int]) -> list[int]:
    return order[::-1]


def shuffled(order: list[int]) -> list[int]:
    return random.Random(5).sample(order, len(order))


def halves_exchanged(order: list[int]) -> list[int]:
    half = len(order) // 2
    return order[half:] + order[:half]


def foreign_first(order: list[int]) -> list[int]:
    """Tell chunks that no boot reads before those that all do, as many as stay one kind."""
    return [*range(100_000, 100_000 + len(order) // 2), *order[::-1]]


@pytest.mark.parametrize("lie", [reversed_order, shuffled, halves_exchanged, foreign_first])
@pytest.mark.parametrize("place", [0, 5, 9])
def test_one_liar_in_ten_costs_next_to_nothing(
    lie: Callable[[list[int]], list[int]], place: int
) -> None:
    rng = random.Random(2)
    true = rng.sample(range(10_000), CHUNKS)
    boots = [
        boot_of(lie(true) if host == place else noisy(true, rng), f"h{host}", host)
        for host in range(10)
    ]
    published = max(learnt(boots), key=lambda kind: len(kind.boots)).order()
    assert worst_prefix(published, true) <= 0.03
    assert set(published) == set(true), "it adds nothing, and takes nothing away"


def test_liar_that_boots_all_the_time_has_its_share_of_the_votes() -> None:
    rng = random.Random(3)
    true = rng.sample(range(10_000), CHUNKS)
    boots = []
    for number in range(60):
        boots.append(boot_of(true[::-1], "liar", number))
        if number % 6 == 0:
            boots.append(boot_of(noisy(true, rng), f"h{number // 6}", number))
    (kind,) = learnt(boots)
    assert len(kind.boots) == BOOTS_MAX
    assert sum(boot.host == "liar" for boot in kind.boots) < BOOTS_MAX / 2
    honest = [*boots, *(boot_of(noisy(true, rng), f"h{host}", 100 + host) for host in range(10))]
    (kind,) = learnt(honest)
    assert sum(boot.host == "liar" for boot in kind.boots) <= 2
    assert worst_prefix(kind.order(), true) <= 0.03


def test_last_boots_of_a_kind_count() -> None:
    before, after = list(range(100)), [*range(20, 100), *range(200, 220)]
    boots = [boot_of(before, f"h{number}", number) for number in range(20)]
    boots += [boot_of(after, f"h{number}", 100 + number) for number in range(14)]
    (kind,) = learnt(boots)
    assert set(kind.order()) == set(after)
    assert kind.total == 34


def test_kind_that_was_matched_least_recently_gives_way() -> None:
    starts = (0, 1000, 2000)
    boots = [boot_of(range(start, start + 100), "h1", start) for start in starts]
    boots.append(boot_of(range(100), "h1", 1))
    kinds = learnt([*boots, boot_of(range(5000, 5100), "h1", 5)])
    assert len(kinds) == KINDS_MAX
    assert {min(kind.order()) for kind in kinds} == {0, 2000, 5000}


def test_strange_boots_do_not_end_what_hosts_agree_on() -> None:
    boots = [
        boot_of(range(start, start + 100), host, start)
        for start in (0, 1000, 2000)
        for host in ("h1", "h2")
    ]
    kinds = learnt(boots)
    report = len(boots)
    for number in range(LASTING_REPORTS - 5):
        report += 1
        kinds = merged(kinds, boot_of(range(9000 + 200 * number, 9100 + 200 * number)), report)
    assert {min(kind.order()) for kind in kinds} == {0, 1000, 2000}
    kinds = merged(kinds, boot_of(range(7000, 7100)), report + LASTING_REPORTS)
    assert {min(kind.order()) for kind in kinds} == {1000, 2000, 7000}, "but they age"


def test_boot_much_longer_than_others_is_cut() -> None:
    boots = [boot_of(range(100), f"h{number}", number) for number in range(4)]
    scan = boot_of(range(10_000, 20_000), "h5", 5)
    kinds = learnt([*boots, scan])
    assert [len(kind.order()) for kind in kinds] == [100, LONGEST_FACTOR * 100]
    kinds = learnt([scan, *boots])
    assert max(len(kind.order()) for kind in kinds) == 10_000, "the first ones have no median"


def test_kinds_that_become_the_same_are_united() -> None:
    left, right = list(range(100)), list(range(50, 150))
    kinds = learnt([boot_of(left, "h1"), boot_of(right, "h2")])
    assert len(kinds) == 2
    between = list(range(25, 125))
    for number in range(10):
        kinds = merged(kinds, boot_of(between, f"h{3 + number}", number), 3 + number)
    (kind,) = kinds
    assert set(kind.order()) == set(between)
    assert (len(kind.boots), kind.total) == (12, 12)


def test_kinds_are_used_when_two_hosts_agree() -> None:
    lone = learnt([boot_of(range(100)), boot_of(range(500, 600), number=2)])
    assert [kind.matched for kind in used(lone, is_lone=True)] == [2, 1]
    kinds = merged(lone, boot_of(range(100), "h2"), 3)
    assert [min(kind.order()) for kind in used(kinds, is_lone=False)] == [0]


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(12)), st.integers(0, 2**32))
def test_order_of_reports_changes_nothing_that_is_published(
    permutation: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    true = [rng.sample(range(start, start + 300), 60) for start in (0, 1000)]
    boots = [
        boot_of(noisy(true[number % 2], rng), f"h{number % 5}", number) for number in range(12)
    ]
    there = {kind.order() for kind in learnt(boots)}
    assert {kind.order() for kind in learnt([boots[at] for at in permutation])} == there
    assert len(there) == 2


def test_memory_of_a_kind_is_bounded() -> None:
    assert boot_kinds.BOOTS_MAX * boot_kinds.KINDS_MAX == 48
    kinds = learnt([boot_of(range(16), f"h{number % 3}", number) for number in range(100)])
    assert [len(kind.boots) for kind in kinds] == [BOOTS_MAX]
