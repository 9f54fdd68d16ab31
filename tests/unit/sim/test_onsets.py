"""Since when hosts are overloaded in truth."""

import math

import numpy as np
import pytest

from acstor.policy.settings import PolicySettings
from sim import onsets

LINK = 1e8
HOSTS = 4


class Counted:
    """Counters of hosts, as a simulation has them."""

    def __init__(self) -> None:
        self.extra_out, self.moved_out = np.zeros(HOSTS), np.zeros(HOSTS)

    def counters(self) -> dict[str, bytes]:
        nothing = bytes(8 * HOSTS)
        return {
            "extra_in": nothing, "extra_out": self.extra_out.tobytes(),
            "moved_in": nothing, "moved_out": self.moved_out.tobytes(),
        }  # fmt: skip


@pytest.fixture
def run() -> Counted:
    return Counted()


def watch(run: Counted) -> onsets.Onsets:
    return onsets.Onsets(run, PolicySettings(), LINK)


def carry(
    run: Counted, watched: onsets.Onsets, now: float, extra: float, moved: float = 0.0
) -> None:
    """Let host 0 have sent parts of its link for a second."""
    run.extra_out[0] += extra * LINK
    run.moved_out[0] += moved * LINK
    watched.check(now)


def test_overload_begins_with_the_load_and_outlasts_a_pause(run: Counted) -> None:
    watched = watch(run)
    for second, moved in enumerate([0.0, 0.0, 0.6, 0.6, 0.3, 0.6, 0.6]):
        carry(run, watched, second + 1.0, 0.4, moved)
    assert watched.of(0) == 2.0, "0.1 below the limit for a second, 0.2 above it for two"
    assert math.isinf(watched.of(1))


def test_overload_ends_when_it_is_none_on_average(run: Counted) -> None:
    watched = watch(run)
    for second, extra in enumerate([1.0, 1.0, 0.5, 0.2, 0.9]):
        carry(run, watched, second + 1.0, extra)
    assert watched.of(0) == 4.0


def test_what_the_data_plane_moves_alone_is_no_overload(run: Counted) -> None:
    watched = watch(run)
    carry(run, watched, 1.0, 0.05, 0.95)
    assert math.isinf(watched.of(0))
    carry(run, watched, 2.0, 0.1, 0.9)
    assert watched.of(0) == 1.0
