"""The rates of the simulator against the textbook's in exact fractions."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import fairness
from tests.unit.sim import exact_fairness


def filled(
    paths: list[list[int]], caps: list[float], capacity: list[float]
) -> tuple[list[float], fairness.Floats]:
    width = max((len(path) for path in paths), default=0) or 1
    table = np.zeros((len(paths), width), np.int32)
    for flow, path in enumerate(paths):
        table[flow, : len(path)] = path
    length = np.array([len(path) for path in paths], np.int32)
    cap, links = np.array(caps), len(capacity)
    finite = [flow for flow in np.argsort(cap, kind="stable") if np.isfinite(cap[flow])]
    scratch = fairness.Scratch(links, len(paths), width)
    rates, level = np.zeros(len(paths)), np.zeros(links)
    fairness.fill(
        np.arange(len(paths), dtype=np.int32), len(paths), np.array(finite, np.int32), len(finite),
        table, length, cap, np.array(capacity), rates, level, np.zeros(links, np.int32),
        scratch.left, scratch.unfixed, scratch.starts, scratch.members, scratch.fixed,
        scratch.heap_share, scratch.heap_link,
    )  # fmt: skip
    return [float(rate) for rate in rates], level


def test_one_link_is_shared_alike() -> None:
    assert filled([[0], [0], [0], [0]], [np.inf] * 4, [100.0])[0] == [25.0] * 4


def test_what_one_flow_cannot_use_others_get() -> None:
    rates, level = filled([[0], [0], [0, 1]], [10.0, np.inf, np.inf], [100.0, 30.0])
    assert rates == [10.0, 60.0, 30.0]
    assert list(level) == [60.0, 30.0]


def test_flow_over_no_link_gets_its_cap() -> None:
    assert filled([[], [0]], [7.0, np.inf], [5.0])[0] == [7.0, 5.0]


LINKS = 6
FLOWS = st.lists(
    st.tuples(
        st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=4, unique=True),
        st.one_of(st.none(), st.integers(0, 60)),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(FLOWS, st.lists(st.integers(1, 100), min_size=LINKS, max_size=LINKS))
def test_rates_are_those_of_the_textbook(
    flows: list[tuple[list[int], int | None]], capacity: list[int]
) -> None:
    paths = [path for path, _ in flows]
    exact = exact_fairness.rates(
        paths,
        [None if cap is None else Fraction(cap) for _, cap in flows],
        [Fraction(rate) for rate in capacity],
    )
    caps = [np.inf if cap is None else float(cap) for _, cap in flows]
    rates, _ = filled(paths, caps, [float(rate) for rate in capacity])
    assert np.allclose(rates, [float(rate) for rate in exact], rtol=1e-9, atol=1e-9)


def test_large_tables_waste_nothing_and_exceed_nothing() -> None:
    random = np.random.default_rng(1)
    paths = [sorted({int(link) for link in random.integers(0, 300, 6)}) for _ in range(5000)]
    capacity = random.uniform(1, 100, 300)
    rates, level = filled(paths, [np.inf] * 5000, list(capacity))
    used = np.zeros(300)
    for path, rate in zip(paths, rates, strict=True):
        used[path] += rate
    assert (used <= capacity * (1 + 1e-9)).all()
    # Each flow has a bottleneck: a full link on which nobody has more.
    for path, rate in zip(paths, rates, strict=True):
        assert any(level[link] >= 0 and rate >= level[link] * (1 - 1e-9) for link in path)
