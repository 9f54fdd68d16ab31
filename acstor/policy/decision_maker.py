"""Deciding weights and threshold from collections of loads: no I/O, no clock, no randomness.

Source: ACStor, section 3.6: weights by Equation (1) or another plug-in, a threshold by Algorithm 2
or another plug-in, and only when hosts were overloaded in two successive collections. What is added
so that nothing swings:

* what is asked for depends on extra traffic only, so that the effect of a decision does not call
  for the next one; the busy link that triggers may be busy with what the data plane moves;
* after a change of weights there is none for ``cool_down`` collections;
* an overloaded host is relieved only when its weight is off by the hysteresis, which counts twice
  after one change and three times after more, until there was no overload for a while;
* one change moves at most ``moved_share_max`` of the circle, what overloaded hosts give away
  first; what is left follows while hosts stay overloaded;
* without any busy host for ``calm_after`` collections weights go back, towards less skew only.
"""

from collections.abc import Callable, Mapping
from collections.abc import Collection as Names

from acstor.cluster.ring.decision import SIMILARITY_MAX, Decision
from acstor.policy import plugins
from acstor.policy.collection import Collection, HostLoad
from acstor.policy.consideration import Consideration
from acstor.policy.memory import Memory
from acstor.policy.observation import Observation, observe
from acstor.policy.outcome import Outcome
from acstor.policy.pins import Pins
from acstor.policy.proportions import fitted
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology

Pairs = tuple[tuple[str, str, float], ...]
Similarity = Callable[[Names[str], Names[str]], Pairs]
"""Takes the hosts that give and those that receive; returns (giver, receiver, share), the most
similar first."""


class DecisionMaker:
    """Takes one collection after the other.

    :param topology: None: not declared.
    :param similarity: between whom v-nodes should move; None: between any.
    :param memory: to go on from.
    :raises UnsupportedError: when the settings name a plug-in that there is not.
    """

    def __init__(
        self,
        settings: PolicySettings,
        *,
        topology: Topology | None = None,
        similarity: Similarity | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.settings = settings
        self.topology = topology
        self.memory = memory or Memory()
        self._similarity = similarity
        self._weights = plugins.weight_policy(settings)
        self._thresholds = plugins.threshold_policy(settings)
        self._forecast = plugins.forecast(settings)

    def decide(
        self, collection: Collection, previous: Decision | None, pins: Pins | None = None
    ) -> Outcome:
        """Return what becomes of one collection, and remember it.

        The decision of the outcome has the term and the leader of ``previous``, the next sequence,
        and the time of the collection.

        :param previous: the decision in force.
        :param pins: what the operator insists on.
        """
        outcome = self.consider(collection, previous, pins)
        self.memory = outcome.memory
        return outcome

    def consider(
        self, collection: Collection, previous: Decision | None, pins: Pins | None = None
    ) -> Outcome:
        """As :meth:`decide`, but remember nothing."""
        return Consideration(self, collection, previous, pins or Pins()).outcome()

    # For one consideration

    def observed(self, collection: Collection) -> Observation:
        """Return what a collection shows, with what is remembered."""
        return observe(collection, self.memory, self.settings, self._forecast)

    def targets(self, loads: Mapping[str, HostLoad], total: float) -> dict[str, float]:
        """Return the weights that the policy asks for, between floor and ceiling."""
        raw = self._weights.weigh(loads)
        return fitted(raw, total, self.settings.weight_floor, self.settings.weight_ceiling)

    def threshold(self, loads: Mapping[str, HostLoad], in_force: int | None) -> int | None:
        """Return the threshold that the policy asks for: at most the plain one.

        Overload of switches is a reason to ask fewer hosts than without, never more.
        """
        chosen = self._thresholds.choose(loads, self.topology, in_force)
        most = self.settings.threshold_max
        if chosen is None or most is None:
            return most if chosen is None else chosen
        return min(chosen, most)

    def pairs(self, givers: Names[str], receivers: Names[str]) -> Pairs:
        """Return between whom v-nodes should move."""
        if self._similarity is None or not givers or not receivers:
            return ()
        return self._similarity(givers, receivers)[:SIMILARITY_MAX]
