"""Interface of a weight policy."""

from collections.abc import Mapping
from typing import Protocol

from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings


class WeightPolicy(Protocol):
    """Says how much of the requests each host should get.

    Made with the settings. It must depend on the extra traffic and the links only, never on what
    the data planes moved: that follows from its own weights, and it would chase itself.
    """

    def __init__(self, settings: PolicySettings) -> None: ...

    def weigh(self, loads: Mapping[str, HostLoad]) -> dict[str, float]:
        """Return a number above 0 for each host; only their proportions count."""


def traffic_of(load: HostLoad, kind: str) -> float:
    """Return the extra traffic of a host, bytes per second.

    :param kind: ``in``, ``out``, ``sum`` of both or ``max`` of both.
    """
    match kind:
        case "in":
            return load.extra_in
        case "out":
            return load.extra_out
        case "max":
            return max(load.extra_in, load.extra_out)
        case _:
            return load.extra_in + load.extra_out
