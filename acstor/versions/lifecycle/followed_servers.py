"""Servers whose hosts are to keep their disks: those of which a version may be wanted at the end.

Nova deletes disks and asks nobody, so a host keeps a hard link to them from the beginning. Flavors
and images tell it themselves; what metadata and the defaults of projects say only Nova and the
database know. Hosts are told when Nova tells of a change, and all of them again now and then: an
agent that was restarted knows none, and Nova tells nobody of changed metadata.
"""

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions.lifecycle.server_events import payload_of
from acstor.versions.lifecycle.server_requests import ServerRequests
from acstor.versions.services.compute import Server

LOG = logging.getLogger(__name__)

EVENTS = (
    "instance.create.end",
    "instance.update",
    "instance.power_on.end",
    "instance.rebuild.end",
    "instance.resize_finish.end",
    "instance.live_migration_post_dest.end",
    "instance.unshelve.end",
)
"""Event types after which a server may be on another host, or ask for something else."""
CALLS_AT_A_TIME = 8
"""Hosts that are told at the same time."""
WAITING_MAX = 10_000
"""Servers of which hosts are still to be told; of more, the next look at all tells."""

Tell = Callable[[str, str, frozenset[Trigger]], None]
"""Tells a host at which events versions of a server are wanted: host, server, events."""


class FollowedServers:
    """Servers that hosts are told of. Safe to use from several threads.

    :param tell: see :data:`Tell`; may block, and raise when the host does not answer.
    """

    def __init__(self, requests: ServerRequests, tell: Tell) -> None:
        """Tell nobody anything yet."""
        self._requests = requests
        self._tell = tell
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[str, frozenset[Trigger]]] = {}
        self._told: dict[str, str] = {}
        """Host of each server that is followed, as far as this process has told it."""
        self._is_stopped = False
        self._pool = concurrent.futures.ThreadPoolExecutor(CALLS_AT_A_TIME, "follow")

    def hear(self, event_type: str, payload: Any) -> None:
        """Take a notification; from any thread. What is wrong with it is told, and no error."""
        if event_type not in EVENTS:
            return
        found = payload_of(payload)
        if found is None:
            return
        try:
            on = self._requests.of(
                found.server, found.project, found.metadata, found.flavor_specs, found.image
            ).version_on
        except exception.AcstorError as error:
            LOG.warning("server %s is not followed yet: %s", found.server, error)
            return
        self._begin(found.server, found.host, on)

    def look(self, servers: Iterable[Server]) -> int:
        """Have hosts told of all servers; return of how many they are told.

        :raises UnavailableError: when Nova, Glance or the database cannot be reached.
        """
        count = 0
        seen: set[str] = set()
        for server in servers:
            if self._is_stopped:
                return count
            seen.add(server.id)
            if server.host is None:
                continue
            on = self._requests.of(
                server.id, server.project, server.metadata, server.flavor_specs, server.image
            ).version_on
            count += self._begin(server.id, server.host, on)
        with self._lock:
            for gone in self._told.keys() - seen:
                del self._told[gone]
        return count

    def stop(self) -> None:
        """Tell nobody any more; calls that are under way end by themselves."""
        self._is_stopped = True
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, server: str, host: str, on: frozenset[Trigger]) -> bool:
        """Have a host told, unless there is nothing to tell it; the latest word counts."""
        with self._lock:
            if not on and self._told.get(server) != host:
                self._waiting.pop(server, None)
                return False
            is_new = server not in self._waiting
            if is_new and len(self._waiting) >= WAITING_MAX:
                return False
            self._waiting[server] = (host, on)
        if is_new:
            try:
                self._pool.submit(self._tell_of, server)
            except RuntimeError:
                return False  # it was stopped meanwhile
        return True

    def _tell_of(self, server: str) -> None:
        with self._lock:
            word = self._waiting.pop(server, None)
        if word is None:
            return
        host, on = word
        try:
            self._tell(host, server, on)
        except exception.AcstorError as error:
            # Of hosts that capture nothing there is nothing to say.
            LOG.log(
                logging.WARNING if error.is_transient else logging.DEBUG,
                "host %s is not told that server %s asks for versions at %s: %s",
                host,
                server,
                ", ".join(sorted(on)) or "no event",
                exception.one_line(error),
            )
            return
        except Exception:
            LOG.exception("telling host %s of server %s failed", host, server)
            return
        with self._lock:
            if on:
                self._told[server] = host
            else:
                self._told.pop(server, None)
