"""The two approaches that are our data plane: ACStor, and static collaborative (paper, §5.2)."""

import abc
import json
from typing import ClassVar

from acstor import native
from testbed import host_processes, origin_repository
from testbed.approaches import base
from testbed.guest.build import GuestImage
from testbed.guest.machine import BackingDisk
from testbed.host_processes import Configuration, HostProcesses
from testbed.network import Namespace
from testbed.testbed import Testbed

TRACE_READS_MAX = 200_000
STATIC_VNODES = 4096

_TIERS = {
    "zero": "local",
    "recent": "local",
    "store": "local",
    "peer": "peer",
    "previous_owner": "peer",
    "origin": "origin",
}
_TIER_METRIC = "acstor_read_chunk_bytes_total"
_ORIGIN_METRIC = "acstor_origin_bytes_total"


class Collaborative(base.Approach):
    """Base of both approaches: a repository behind the origin's link, a data plane per host.

    ``union_bytes`` is of what reaches the data planes: guests' reads and what kernels read ahead.
    """

    overrides: ClassVar[Configuration] = {}

    def __init__(
        self, testbed: Testbed, image: GuestImage, options: Configuration | None = None
    ) -> None:
        """Start nothing yet.

        :param options: of all hosts, by group; those that make the approach what it is go first.
        """
        super().__init__(testbed, image)
        self.repository = origin_repository.OriginRepository(
            testbed, image.disk, image.directory.name
        )
        self._options = {
            group: {**(options or {}).get(group, {}), **self.overrides.get(group, {})}
            for group in {**(options or {}), **self.overrides}
        }
        self.hosts: dict[str, HostProcesses] = {}
        self._tiers: dict[str, base.TierBytes] = {}
        self._tiers_before: dict[str, base.TierBytes] = {}

    def start(self) -> None:
        """Register the image where that is not done, then start the origin and all hosts."""
        self.repository.register()
        self.repository.serve()
        self._make_hosts()
        for processes in self.hosts.values():
            processes.start_dataplane()
        for processes in self.hosts.values():
            processes.wait_serving()
        self._give_ring_and_image()
        for processes in self.hosts.values():
            processes.wait_ready(self.repository.image_id, len(self.hosts))
        self._start_traces()

    def take_over(self) -> None:
        """Go on with the processes of a run that was left up."""
        self._make_hosts()
        for processes in self.hosts.values():
            processes.wait_serving()
        self._start_traces()

    def _make_hosts(self) -> None:
        for host in self.testbed.hosts:
            self.hosts[host.name] = HostProcesses(
                self.testbed, host, self.name, self.repository.url, self._options
            )

    def _start_traces(self) -> None:
        for processes in self.hosts.values():
            processes.admin.call(
                "ledger.start", image=self.repository.image_id, capacity=TRACE_READS_MAX
            )
        # What attaching and pinning read is not the guests'; it leaves the origin all the same.
        self._tiers_before = {name: host_tiers(host) for name, host in self.hosts.items()}

    @abc.abstractmethod
    def _give_ring_and_image(self) -> None:
        """Let every host have the ring and offer the image; returns when each does."""

    def disk(self, host: Namespace) -> BackingDisk:
        """Return the image's file in the host's mount."""
        return BackingDisk(str(self.hosts[host.name].disk(self.repository.image_id)))

    def measure(self) -> None:
        """Read the counters and traces of all data planes."""
        chunk_size = 1
        touched: set[int] = set()
        origin_bytes = 0
        for name, host in self.hosts.items():
            self._tiers[name] = minus(host_tiers(host), self._tiers_before[name])
            origin_bytes += int(metric_sum(host, _ORIGIN_METRIC))
            status = host.status() or {}
            chunk_size = int(status["chunk_size"])
            touched |= chunks_read(host.admin.call("ledger.get", image=self.repository.image_id))
        self.origin_chunk_bytes = origin_bytes
        self.union_bytes = chunk_size * len(touched)

    def stop(self) -> None:
        """Stop the hosts' processes and the origin."""
        for processes in self.hosts.values():
            processes.stop()
        self.repository.stop()

    def tiers(self) -> dict[str, base.TierBytes]:
        """Return what :meth:`measure` read."""
        return self._tiers


class Acstor(Collaborative):
    """ACStor as an operator runs it: agents find each other and publish the ring."""

    name = "acstor"
    title = "ACStor"
    explanation = "data plane and agent per host, ring from the membership, hedging"

    def _give_ring_and_image(self) -> None:
        for processes in self.hosts.values():
            processes.start_agent()


class StaticCollaborative(Collaborative):
    """Our data plane with what ACStor adds to collaborative caching left out.

    Every host has the same share of the ring for ever; nothing is re-mapped, no request goes to
    another candidate because the first is late or loaded, no host keeps a chunk that another
    one owns, and nothing is compressed on its way.
    As in the paper the mapping only knows the topology, and here all hosts are equally far apart.
    """

    name = "static-collaborative"
    title = "static collaborative"
    explanation = "our data plane with equal weights, no agent, no remap, no hedging"
    overrides: ClassVar[Configuration] = {
        "readpath": {
            "hedge_enabled": "false",
            "keep": "never",
            "load_aware": "false",
            "compress_slow": "false",
        },
    }

    def _give_ring_and_image(self) -> None:
        hosts = [
            native.RingHost(host.name, f"{host.address}:{host_processes.PEER_PORT}", 1)
            for host in self.testbed.hosts
        ]
        ring_path = self.testbed.run.directory(self.name) / "ring.bin"
        ring_path.write_bytes(native.build_ring(hosts, STATIC_VNODES).encode())
        manifest_path = self.repository.manifest_file()
        for processes in self.hosts.values():
            processes.admin.call("image.attach", path=str(manifest_path))
            processes.admin.call("ring.set", path=str(ring_path))


def chunks_read(trace: str) -> set[int]:
    """Return the indexes of the chunks that a trace's reads touched and that are not zero."""
    touched = set()
    for line in trace.splitlines():
        record = json.loads(line)
        if record["kind"] == "chunk" and record["tier"] != "zero":
            touched.add(int(record["chunk"]))
    return touched


def host_tiers(host: HostProcesses) -> base.TierBytes:
    """Return the bytes that a data plane gave to its guests, by tier; zeros are left out."""
    counted = {"local": 0, "peer": 0, "origin": 0}
    for sample in host.metrics():
        tier = sample.labels.get("tier", "")
        if sample.name == _TIER_METRIC and tier != "zero":
            counted[_TIERS[tier]] += int(sample.value)
    return base.TierBytes(**counted)


def minus(after: base.TierBytes, before: base.TierBytes) -> base.TierBytes:
    """Return the difference of two counts that hold all three tiers."""
    return base.TierBytes(
        (after.local or 0) - (before.local or 0),
        (after.peer or 0) - (before.peer or 0),
        (after.origin or 0) - (before.origin or 0),
    )


def metric_sum(host: HostProcesses, name: str) -> float:
    """Return the sum of a metric over its labels."""
    return sum(sample.value for sample in host.metrics() if sample.name == name)
