"""Interface of a threshold policy."""

from collections.abc import Mapping
from typing import Protocol

from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings
from acstor.policy.switch_loads import SwitchLoad
from acstor.policy.topology import Topology

STAY_SHARE = 0.75
"""Part of the limit above which a switch that counted as overloaded goes on counting so."""


class ThresholdPolicy(Protocol):
    """Says from what distance on hosts are not to be asked.

    Made with the settings. It must depend on extra traffic only, as weights must.
    """

    def __init__(self, settings: PolicySettings) -> None: ...

    def choose(
        self, loads: Mapping[str, HostLoad], topology: Topology | None, in_force: int | None
    ) -> int | None:
        """Return the threshold, hops; None: no host is too far.

        :param in_force: the threshold in force, for hysteresis.
        """


def hops_through(level: int) -> int:
    """Return the least hops of a request that goes through a switch of this level."""
    return 2 * level + 1


def affected_level(switch: SwitchLoad) -> int:
    """Return the lowest level through which all requests go that suffer from a busy switch.

    Its own where it is what it forwards that is judged. Where it is its uplink, requests between
    hosts below it are none the worse for it: those suffer that go on to the level above.
    """
    return switch.level if switch.is_judged_whole else switch.level + 1
