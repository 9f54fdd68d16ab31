"""The approaches by name, in the order in which the demo runs them."""

from testbed.approaches.base import Approach
from testbed.approaches.collaborative import Acstor, StaticCollaborative
from testbed.approaches.local_cache import LocalCache
from testbed.approaches.non_cache import NonCache

APPROACHES: dict[str, type[Approach]] = {
    approach.name: approach for approach in (NonCache, LocalCache, StaticCollaborative, Acstor)
}
