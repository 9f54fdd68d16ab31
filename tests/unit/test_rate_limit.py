"""The token bucket of the control plane, whose rate may change."""

import pytest

from acstor.rate_limit import BURST_SECONDS, RateLimit
from testbed.doubles.virtual_time import VirtualTime


def test_taken_bytes_are_paid_at_the_rate() -> None:
    clock = VirtualTime(100.0)
    limit = RateLimit(1000, clock)
    assert limit.take(2000) == 2.0
    clock.now += 10.0
    assert limit.take(2000) == 2.0 - BURST_SECONDS


def test_no_rate_is_no_limit() -> None:
    assert RateLimit(0).take(1 << 40) == 0.0


def test_changed_rate_counts_for_what_is_owed() -> None:
    clock = VirtualTime(100.0)
    limit = RateLimit(1000, clock)
    assert limit.take(4000) == 4.0
    clock.now += 1.0
    limit.change_rate(100)
    assert limit.take(0) == pytest.approx(30.0)
    limit.change_rate(3000)
    assert limit.take(0) == pytest.approx(1.0)
    limit.change_rate(0)
    assert limit.take(1 << 40) == 0.0
    limit.change_rate(1000)
    assert limit.take(500) > 0.0


def test_burst_is_kept_when_the_rate_changes() -> None:
    clock = VirtualTime(100.0)
    limit = RateLimit(1000, clock)
    clock.now += 60.0
    limit.change_rate(2000)
    assert limit.take(2000) == pytest.approx(1.0 - BURST_SECONDS)
