"""Telling workers that a task waits, so that it begins at once.

A hint, as announcements to agents are: workers look by themselves, too, so a message that is lost,
or an API without a broker, costs a task the time until the next look and nothing else. The page
``doc/source/reference/protocols/worker-rpc.rst`` describes it.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from acstor.rpc import background_server, transport
from acstor.rpc.announcements import Announcement, Announcements
from acstor.rpc.background_server import BackgroundServer

LOG = logging.getLogger(__name__)

EXCHANGE = "openstack"
"""As of the agents' topic: named, whatever control_exchange is."""
TOPIC = "acstor-worker-wake"
"""Name of a queue, too, in the broker, so no pool of notifications may have it."""
NAMESPACE = "acstor.worker"
VERSION = "1.0"
"""1.0: tasks_queued."""


class WakeEndpoint:
    """Takes the announcement that tasks were queued.

    :param on_tasks: called at each; from a thread of oslo.messaging.
    """

    def __init__(self, on_tasks: Callable[[], None]) -> None:
        """Keep whom to wake."""
        import oslo_messaging

        self.target = oslo_messaging.Target(namespace=NAMESPACE, version=VERSION)
        self._on_tasks = on_tasks

    def tasks_queued(self, context: dict[str, Any], **more: object) -> None:
        """Take the announcement; it says nothing else, and what it says is not believed."""
        del context, more
        self._on_tasks()


class WakeServer(BackgroundServer):
    """Hears that tasks were queued.

    :param host: name of this host, its server name on the topic. Every worker of a host hears
        everything all the same: announcements go to all.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, on_tasks: Callable[[], None]) -> None:
        """Listen to nobody yet."""
        self._conf = conf
        self._host = host
        self._on_tasks = on_tasks
        super().__init__("worker-wake", self._listening, on_failure=_report)

    def _listening(self) -> Any:
        import oslo_messaging

        return background_server.started(
            transport.open_transport(self._conf),
            lambda opened: oslo_messaging.get_rpc_server(
                opened,
                oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, server=self._host),
                [WakeEndpoint(self._on_tasks)],
                access_policy=oslo_messaging.DefaultRPCAccessPolicy,
            ),
        )


class TaskAnnouncements:
    """Tells all workers that a task was queued; from any thread, and never waits.

    It begins at the first one of a process: a WSGI server makes others of the process that has
    loaded the application, and threads do not go with them.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        open_announcements: Callable[[cfg.ConfigOpts], Announcements] = Announcements,
    ) -> None:
        """Connect to nothing yet."""
        self._conf = conf
        self._open = open_announcements
        self._lock = threading.Lock()  # of what follows
        self._announcements: Announcements | None = None
        self._process: int | None = None

    def announce(self) -> None:
        """Tell them; at most one announcement waits for the broker, since one tells of all."""
        try:
            self._present().announce_once(
                Announcement("tasks_queued", VERSION, {}, TOPIC, NAMESPACE)
            )
        except RuntimeError as error:  # no thread can be had; the task is queued all the same
            LOG.warning("workers are not told of a task, their looks find it: %s", error)

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds."""
        with self._lock:
            announcements, self._announcements = self._announcements, None
        if announcements is not None:
            announcements.stop(timeout)

    def _present(self) -> Announcements:
        with self._lock:
            if self._announcements is None or self._process != os.getpid():
                found = self._open(self._conf)
                found.start()
                self._announcements, self._process = found, os.getpid()
            return self._announcements


def _report(error: Exception, failures: int) -> None:
    if failures == 1:
        LOG.warning("new tasks cannot be heard of, looks find them: %s", error)
