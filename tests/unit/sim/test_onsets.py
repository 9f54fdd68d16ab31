"""Since when hosts are overloaded in truth."""

import math

import pytest

from acstor.policy.settings import PolicySettings
from sim.onsets import Onsets
from sim.run import Run, prepare
from tests.unit.sim.small_runs import case

LINK = 1e8


@pytest.fixture
def run() -> Run:
    return prepare(case("acstor", machines__per_host=0))


def carry(run: Run, onsets: Onsets, now: float, extra: float, moved: float = 0.0) -> None:
    """Let host 0 have sent parts of its link for a second."""
    run.world.extra_out[0] += extra * LINK
    run.world.moved_out[0] += moved * LINK
    onsets.look(now)


def test_overload_begins_with_the_load_and_outlasts_a_pause(run: Run) -> None:
    onsets = Onsets(run.world, PolicySettings(), LINK)
    for second, moved in enumerate([0.0, 0.0, 0.6, 0.6, 0.3, 0.6, 0.6]):
        carry(run, onsets, second + 1.0, 0.4, moved)
    assert onsets.of(0) == 2.0, "0.1 below the limit for a second, 0.2 above it for two"
    assert math.isinf(onsets.of(1))


def test_overload_ends_when_it_is_none_on_average(run: Run) -> None:
    onsets = Onsets(run.world, PolicySettings(), LINK)
    for second, extra in enumerate([1.0, 1.0, 0.5, 0.2, 0.9]):
        carry(run, onsets, second + 1.0, extra)
    assert onsets.of(0) == 4.0


def test_what_the_data_plane_moves_alone_is_no_overload(run: Run) -> None:
    onsets = Onsets(run.world, PolicySettings(), LINK)
    carry(run, onsets, 1.0, 0.05, 0.95)
    assert math.isinf(onsets.of(0))
    carry(run, onsets, 2.0, 0.1, 0.9)
    assert onsets.of(0) == 1.0
