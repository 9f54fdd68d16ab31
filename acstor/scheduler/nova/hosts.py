"""The one table of host states of a nova-scheduler process, shared by its weigher and its filter.

nova-scheduler makes weighers and filters in its parent process and then forks its workers. Threads
and connections do not survive a fork, so each worker gets a table and a listener of its own; they
start as soon as it is forked. The parent, which decides nothing, never listens.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import nova.conf
from nova import monkey_patch
from oslo_config import cfg

from acstor.scheduler.host_table import HostTable
from acstor.scheduler.listener import Listener
from acstor.scheduler.nova import options

LOG = logging.getLogger(__name__)


class Hosts:
    """Host states, heard from the first use on in whatever process that is.

    :param conf: Nova's configuration.
    :param make_listener: returns a listener that fills a table.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        make_listener: Callable[[HostTable], Listener] | None = None,
    ) -> None:
        self._conf = conf
        self._make_listener = make_listener or self._make_own_listener
        self._table: HostTable | None = None
        self._listener: Listener | None = None
        self._starting = threading.Lock()
        self._is_wanted_in_children = False

    def want(self) -> None:
        """Have processes that are forked from now on listen from their start."""
        if not self._is_wanted_in_children:
            self._is_wanted_in_children = True
            os.register_at_fork(after_in_child=self._begin_in_child)

    def table(self) -> HostTable:
        """Return the table of this process; the first call starts its listener."""
        table = self._table
        return table if table is not None else self._start()

    def stop(self, timeout: float) -> None:
        """Stop listening and forget everything."""
        with self._starting:
            listener, self._listener = self._listener, None
            self._table = None
        if listener is not None:
            listener.stop(timeout)

    def _start(self) -> HostTable:
        with self._starting:
            if self._table is None:
                table = HostTable(self._conf.acstor.state_ttl)
                self._listener = self._make_listener(table)
                self._listener.start()
                self._table = table
            return self._table

    def _begin_in_child(self) -> None:
        self._table = self._listener = None
        self._starting = threading.Lock()  # whoever held it is not here
        if monkey_patch.is_patched():
            return  # a green thread made now is lost when the worker replaces its hub: start later
        try:
            self._start()
        except Exception:
            # Whatever it is, the first decision tries again, and the worker must come up.
            LOG.exception("the listener of host states did not start")

    def _make_own_listener(self, table: HostTable) -> Listener:
        return Listener(table, self._open_transport, server=self._conf.host)

    def _open_transport(self) -> Any:
        import oslo_messaging

        return oslo_messaging.get_rpc_transport(
            self._conf, url=self._conf.acstor.transport_url or None
        )


_shared: Hosts | None = None
_sharing = threading.Lock()


def shared() -> Hosts:
    """Return the host states of this process; registers the options of ``[acstor]``."""
    global _shared
    with _sharing:
        if _shared is None:
            options.register_opts(nova.conf.CONF)
            _shared = Hosts(nova.conf.CONF)
            _shared.want()
        return _shared
