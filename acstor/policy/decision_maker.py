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
* without any busy host for ``quiet_period`` collections weights go back, towards less skew only.
"""

from acstor.cluster.ring.decision import Decision
from acstor.policy import plugins
from acstor.policy.collection import Collection
from acstor.policy.evaluation import Evaluation, Rules, Similarity
from acstor.policy.evaluation_result import EvaluationResult
from acstor.policy.load_history import LoadHistory
from acstor.policy.pins import Pins
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology


class DecisionMaker:
    """Takes one collection after the other.

    :param topology: None: not declared.
    :param similarity: between whom v-nodes should move; None: between any.
    :param history: to go on from.
    :raises UnsupportedError: when the settings name a plug-in that there is not.
    """

    def __init__(
        self,
        settings: PolicySettings,
        *,
        topology: Topology | None = None,
        similarity: Similarity | None = None,
        history: LoadHistory | None = None,
    ) -> None:
        self.settings = settings
        self.topology = topology
        self.history = history or LoadHistory()
        self._similarity = similarity
        self._weights = plugins.weight_policy(settings)
        self._thresholds = plugins.threshold_policy(settings)
        self._forecast = plugins.forecast(settings)

    def decide(
        self, collection: Collection, previous: Decision | None, pins: Pins | None = None
    ) -> EvaluationResult:
        """Return what becomes of one collection, and remember it.

        The decision of the result has the term and the leader of ``previous``, the next sequence,
        and the time of the collection.

        :param previous: the decision in force.
        :param pins: what the operator insists on.
        """
        result = self.evaluate(collection, previous, pins)
        self.history = result.history
        return result

    def evaluate(
        self, collection: Collection, previous: Decision | None, pins: Pins | None = None
    ) -> EvaluationResult:
        """As :meth:`decide`, but remember nothing."""
        rules = Rules(
            self.settings,
            self._weights,
            self._thresholds,
            self._forecast,
            self.topology,
            self._similarity,
        )
        return Evaluation(rules, self.history, collection, previous, pins or Pins()).result()
