"""The approaches by name, in the order in which the demo runs them."""

from acstor.testbed.approaches.base import Approach
from acstor.testbed.approaches.collaborative import Acstor, StaticCollaborative
from acstor.testbed.approaches.local_cache import LocalCache
from acstor.testbed.approaches.non_cache import NonCache

APPROACHES: dict[str, type[Approach]] = {
    approach.name: approach for approach in (NonCache, LocalCache, StaticCollaborative, Acstor)
}
