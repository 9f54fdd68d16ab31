"""Bandwidth of a member, divided between its users and the synchronisation."""

import pytest

from acstor.origin.replicated.sync.budget import Bandwidth, SyncBudget
from testbed.doubles.virtual_time import VirtualTime

BANDWIDTH = Bandwidth(total=1000, threshold=400, minimum=50)


@pytest.mark.parametrize(
    ("foreground", "i2"),
    [(0, 400), (600, 400), (700, 300), (949, 51), (950, 50), (1000, 50), (5000, 50)],
)
def test_synchronisation_gets_what_users_leave_within_bounds(foreground: int, i2: int) -> None:
    i1, found = BANDWIDTH.divide(foreground)
    assert found == i2
    assert i1 + found == BANDWIDTH.total, "Equation 1"


@pytest.mark.parametrize(
    ("total", "threshold", "minimum"), [(1000, 400, 0), (1000, 40, 50), (300, 400, 50)]
)
def test_impossible_bandwidth_is_refused(total: int, threshold: int, minimum: int) -> None:
    with pytest.raises(ValueError, match="ascend"):
        Bandwidth(total, threshold, minimum)


def test_share_follows_the_load_of_the_period_before() -> None:
    clock = VirtualTime()
    budget = SyncBudget(BANDWIDTH, clock)
    assert budget.rate == BANDWIDTH.minimum, "nothing is known of the load yet"
    clock.now += 10.0
    assert budget.begin_period() == BANDWIDTH.threshold
    budget.note_foreground(8000)
    clock.now += 10.0
    assert budget.begin_period() == 200
    assert budget.begin_period() == 200, "no time has passed"
    clock.now += 10.0
    assert budget.begin_period() == BANDWIDTH.threshold


def test_copies_wait_for_their_share() -> None:
    clock = VirtualTime()
    budget = SyncBudget(BANDWIDTH, clock)
    clock.now += 10.0
    budget.begin_period()
    waited, copied, began = 0.0, 0, clock.now
    while copied < 40_000:
        seconds = budget.take(500)
        copied += 500
        waited += seconds
        clock.now += seconds
    assert copied / (clock.now - began) == pytest.approx(BANDWIDTH.threshold, rel=0.05)
    assert waited > 0


def test_debt_outlives_the_period_at_its_new_rate() -> None:
    clock = VirtualTime()
    budget = SyncBudget(BANDWIDTH, clock)
    clock.now += 10.0
    budget.begin_period()
    before = budget.take(10_000)
    budget.note_foreground(10_000)
    clock.now += 5.0
    budget.begin_period()
    after = budget.take(0)
    owed = (before - 5.0) * BANDWIDTH.threshold
    assert after == pytest.approx(owed / BANDWIDTH.minimum)
