"""An origin that counts its requests by the second of the replayed trace."""

import dataclasses
import math
import threading

from acstor.origin import base
from testbed.origin_server import OriginServer

OPERATION_BYTES = 64 << 10
"""A transfer as a network file system makes it: a longer one is several."""


@dataclasses.dataclass
class Count:
    """Load of the origin in one second."""

    requests: int = 0
    operations: int = 0  #: the same, each as transfers of at most OPERATION_BYTES
    looks: int = 0  #: beside them: the data plane asks whether a record has changed


class CountingOriginServer(OriginServer):
    """Serves an origin on a port of this machine, and counts while a second is set."""

    def __init__(self, origin: base.Origin) -> None:
        super().__init__(("127.0.0.1", 0), origin)
        self.second: int | None = None
        """Of the trace, now; None: nothing is counted."""
        self.counts: dict[int, Count] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def note_answer(self, command: str, path: str, received: int, sent: int) -> None:
        with self._lock:
            if self.second is None:
                return
            count = self.counts.setdefault(self.second, Count())
            if path.startswith("/refs/"):
                # A change of a record begins with a look, which is not one of those by the clock.
                if command == "GET":
                    count.looks += 1
                    return
                count.looks -= 1
                count.requests += 1
                count.operations += 1
            count.requests += 1
            # The size that HEAD says is not sent.
            size = received if command == "HEAD" else received + sent
            count.operations += max(1, math.ceil(size / OPERATION_BYTES))

    def take(self) -> dict[int, Count]:
        """Return what was counted and begin anew."""
        with self._lock:
            counts, self.counts = self.counts, {}
            return counts
