"""The control loop over many patterns of load: no swinging, relief in time, bounded moves."""

import pytest

from sim.run import run_case
from tests.unit.sim.small_runs import case

PATTERNS = 60
"""In the gate; the extended run takes a thousand per point."""


def control_case(seed: int, **changes: object) -> dict[str, object]:
    fields = {
        "network__fanout": [16], "machines__per_host": 0, "timing__end": 240.0, **changes,
    }  # fmt: skip
    return run_case(case("acstor", seed, **fields))


def check_steady(seeds: range) -> None:
    for seed in seeds:
        mean, cv = (40.0, 70.0, 100.0)[seed % 3], (0.4, 0.8, 1.1)[seed // 3 % 3]
        result = control_case(seed, traffic__mean=mean, traffic__cv=cv)
        assert result["generations"] <= 3, (seed, mean, cv)  # type: ignore[operator]
        ratio = result["moved_over_least_max"]
        assert ratio is None or ratio <= 1.2, seed  # type: ignore[operator]


def test_steady_uneven_load_moves_at_most_twice_after_the_first() -> None:
    check_steady(range(PATTERNS))


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_steady_patterns() -> None:
    check_steady(range(PATTERNS, PATTERNS + 3000))


@pytest.mark.parametrize("period", [6.0, 11.0, 14.0, 18.0])
def test_waves_shorter_than_the_trigger_move_nothing(period: float) -> None:
    # Two successive reports hold at most two thirds of load, whatever the phase of such a wave.
    for seed in range(4):
        result = control_case(
            seed, traffic__mean=70.0, traffic__cv=1.2, traffic__pattern="square",
            traffic__period=period,
        )  # fmt: skip
        assert result["generations"] == 0, (period, seed)


def test_overload_is_relieved_within_bounded_intervals() -> None:
    for seed in range(6):
        result = control_case(
            seed, traffic__mean=70.0, traffic__cv=1.2, traffic__pattern="step",
            traffic__change_at=40.0 + seed,
        )  # fmt: skip
        relief = result["relief_intervals"]
        assert relief is not None, seed
        assert 1.0 <= relief <= 3.0, seed  # type: ignore[operator]


def test_lost_announcements_are_made_up_for_by_looks() -> None:
    for seed in range(3):
        result = control_case(
            seed, traffic__mean=70.0, traffic__cv=1.2, traffic__pattern="step",
            traffic__change_at=40.0 + seed, timing__announced=False,
        )  # fmt: skip
        relief = result["relief_intervals"]
        assert relief is not None, seed
        assert 1.0 <= relief <= 4.1, seed  # type: ignore[operator]


@pytest.mark.parametrize("lie", [float("nan"), -1e8, 6.25e9, float("inf")])
def test_lies_move_no_more_than_a_busy_host_does(lie: float) -> None:
    result = control_case(
        1, traffic__mean=20.0, traffic__cv=0.2, faults__liars=0.125, faults__lie=lie
    )
    assert result["generations"] <= 3  # type: ignore[operator]
    assert result["moved_share_sum"] <= 0.3  # type: ignore[operator]
