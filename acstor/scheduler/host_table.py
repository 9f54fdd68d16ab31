"""The states of hosts as a scheduler knows them: read without waiting, forgotten when old.

Readers look up one entry at a time in dictionaries that the writer only ever replaces entries of;
a lookup in a dictionary is atomic in Python, so a scheduling decision takes no lock and waits for
nobody. What is told of a host counts for ``ttl`` seconds by the reader's own clock: clocks of
hosts are not compared.
"""

import collections
import threading
import time
from collections.abc import Callable

from acstor import exception
from acstor.telemetry.host_states import HostState

HOSTS_MAX = 4096
"""Hosts that are remembered; with all their coverage about 100 MB at the very most."""
IMAGES_MAX = 65536
"""Registered images that are remembered."""
IMAGE_TTL = 600.0
"""Seconds for which an image counts as registered after a host has listed it."""


class HostTable:
    """Table of the last state that each host reported.

    :param ttl: seconds for which a state counts.
    :param clock: monotonic seconds.
    """

    def __init__(self, ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.ttl = ttl
        self.clock = clock
        self._lock = threading.Lock()  # of writers
        self._hosts: dict[str, tuple[float, HostState]] = {}  # name -> (until, state)
        self._images: dict[str, float] = {}  # id -> until
        self._purged_at = clock()
        self.counts: collections.Counter[str] = collections.Counter()
        """Messages by what became of them: ``taken``, ``malformed``, ``version``, ``old``,
        ``full``."""

    def get(self, host: str, now: float) -> HostState | None:
        """Return the state of a host (name in lower case), None when there is none that counts."""
        entry = self._hosts.get(host)
        return entry[1] if entry is not None and now < entry[0] else None

    def is_registered(self, image_id: str, now: float) -> bool:
        """Return whether some host told of this image lately."""
        return now < self._images.get(image_id, 0.0)

    def is_blind(self, now: float) -> bool:
        """Return whether nothing that counts is known of any host."""
        # A copy of the values is one step of the interpreter: no writer comes between.
        return all(until <= now for until, _ in list(self._hosts.values()))

    def take(self, message: object) -> str:
        """Note what a message tells; return what became of it (see :attr:`counts`)."""
        try:
            state = HostState.from_message(message)
        except exception.UnsupportedError:
            outcome = "version"
        except exception.InvalidError:
            outcome = "malformed"
        else:
            outcome = self._note(state)
        with self._lock:
            self.counts[outcome] += 1
        return outcome

    def _note(self, state: HostState) -> str:
        with self._lock:
            now = self.clock()
            self._purge(now)
            former = self._hosts.get(state.host)
            if former is None and len(self._hosts) >= HOSTS_MAX:
                return "full"
            if former is not None and now < former[0] and former[1].sequence >= state.sequence:
                return "old"
            self._hosts[state.host] = (now + self.ttl, state)
            for image_id in (*state.images, *state.coverage):
                if image_id in self._images or len(self._images) < IMAGES_MAX:
                    self._images[image_id] = now + IMAGE_TTL
            return "taken"

    def _purge(self, now: float) -> None:
        if now - self._purged_at < self.ttl:
            return
        self._purged_at = now
        self._hosts = {name: entry for name, entry in self._hosts.items() if now < entry[0]}
        self._images = {name: until for name, until in self._images.items() if now < until}
