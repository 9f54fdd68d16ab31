"""Resource with what all of them work with."""

from acstor.api.backends import Backends
from acstor.api.operations import Gate


class BackedResource:
    """Resource over the backends of its process."""

    def __init__(self, backends: Backends) -> None:
        """Keep the backends."""
        self._backends = backends

    @property
    def gate(self) -> Gate:
        """Gate that its calls come through."""
        return self._backends.gate
