"""No threshold: the configuration of each data plane says."""

from collections.abc import Mapping

from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology


class NoThreshold:
    """Never a threshold."""

    def __init__(self, settings: PolicySettings) -> None:
        del settings

    def choose(
        self, loads: Mapping[str, HostLoad], topology: Topology | None, in_force: int | None
    ) -> int | None:
        """Return None."""
        del loads, topology, in_force
        return None
