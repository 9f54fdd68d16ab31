"""Ceilometer pollsters of a host's network interfaces (entry points ``ceilometer.poll.compute``).

``acstor.host.network.incoming.bytes`` and ``acstor.host.network.outgoing.bytes``: cumulative, one
sample for each interface that counts. Both are made of one reading in a polling cycle, the same
that ACStor's agent takes, and carry what the policy service needs to compute extra traffic as the
agent does (``doc/source/reference/protocols/ceilometer-samples.rst``).
"""

import threading
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, ClassVar

from ceilometer import sample
from ceilometer.polling import plugin_base

from acstor.drivers.ceilometer import host_reading, options
from acstor.drivers.ceilometer.host_reading import HostReading
from acstor.telemetry.traffic import MovedBytes, NetlinkInterfaces

_CACHE_KEY = "acstor.host.network"
_lock = threading.Lock()  # of reading: pollsters may run on several threads


class HostBytes(plugin_base.PollsterBase):  # type: ignore[misc] # Ceilometer has no types
    """Bytes that the interfaces of this host carried in one direction."""

    meter: ClassVar[str]
    counter: ClassVar[str]

    def __init__(self, conf: Any) -> None:
        super().__init__(conf)
        options.register_opts(conf)

    @property
    def default_discovery(self) -> str:
        """The only resource is this host."""
        return "local_node"

    def get_samples(
        self, manager: object, cache: MutableMapping[str, Any], resources: Sequence[str]
    ) -> Iterator[Any]:
        """Yield a sample for each interface.

        :param cache: of one polling cycle, shared by the pollsters.
        :raises OSError: when the interfaces cannot be read; Ceilometer logs it and goes on.
        """
        del manager, resources
        with _lock:
            reading = cache.get(_CACHE_KEY)
            if not isinstance(reading, HostReading):
                reading = cache[_CACHE_KEY] = self._read()
        host = str(self.conf.acstor.host or self.conf.host).lower()
        for interface in reading.interfaces:
            yield sample.Sample(
                name=self.meter,
                type=sample.TYPE_CUMULATIVE,
                unit="B",
                volume=getattr(interface, self.counter),
                user_id=None,
                project_id=None,
                resource_id=f"{host}.{interface.name}",
                resource_metadata=reading.metadata(host, interface, self.counter),
                monotonic_time=reading.read_at,
            )

    def _read(self) -> HostReading:
        ours = self.conf.acstor

        def moved() -> MovedBytes | None:
            return host_reading.moved_bytes(
                ours.metrics_url, ours.metrics_timeout, is_origin_remote=ours.is_origin_remote
            )

        return host_reading.read(
            NetlinkInterfaces(ours.interfaces, ours.link_speed), moved if ours.metrics_url else None
        )


class IncomingBytes(HostBytes):
    """Bytes received."""

    meter = "acstor.host.network.incoming.bytes"
    counter = "received"


class OutgoingBytes(HostBytes):
    """Bytes sent."""

    meter = "acstor.host.network.outgoing.bytes"
    counter = "sent"
