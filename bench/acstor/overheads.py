"""Cost of adapting while nobody boots (paper, section 5.7), control traffic included.

Lookup of an owner, size and distribution of the manifest that takes the place of the paper's OTC
table, memory for it, what agents and policy move and compute, and what follows of it for 1,000
hosts. Misses that a remap causes are a figure of their own (``misses``).
"""

import dataclasses
import datetime
import json
import pathlib
import random
import time
import timeit
import uuid
from collections.abc import Sequence

from acstor import native
from acstor.cluster.ring import building
from acstor.native import Manifest, RingHost, build_ring
from acstor.origin.opening import open_origin
from acstor.policy.collection import Collection, HostLoad
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.settings import PolicySettings
from acstor.repository import layout
from acstor.repository.disk_manifest import WholeManifest
from acstor.repository.images.image_record import ImageRecord
from bench.acstor import message_bytes
from bench.acstor.approaches import ControlledAcstor
from bench.acstor.images import CHUNK_SIZE
from bench.acstor.report import StormSeries
from bench.acstor.settings import EvaluationSettings
from testbed import processes

HOSTS_LARGE = 1000
LOOKUPS = 200_000
IMAGE_BYTES = 4 << 30
"""The paper's VDI."""
IDLE_S = 20.0
SETTLE_S = 6.0
READY_TIMEOUT_S = 120.0
DEFAULT_STATE_S, DEFAULT_LOOK_S = 10.0, 5.0
"""``[agent] state_interval`` and ``interval`` by default, to which figures are brought."""
PAPER_LINK = 125e6
_CLOCK_TICKS = 100.0
_BATCH, _PACK_CHUNKS = 64, 1024


@dataclasses.dataclass(frozen=True)
class Overhead:
    """One figure."""

    what: str
    value: float
    unit: str
    how: str


def lookup(hosts: int) -> Overhead:
    """Return the time of one lookup of an owner, the call from Python included."""
    ring = build_ring(ring_hosts(hosts))
    oids = [random.getrandbits(64) for _ in range(LOOKUPS)]

    def look_up() -> None:
        owner = ring.owner
        for oid in oids:
            owner(oid)

    best = min(timeit.repeat(look_up, number=1, repeat=5)) / LOOKUPS
    return Overhead(
        f"lookup of an owner, {hosts} hosts", best * 1e9, "ns", "best of 5, with the call of Python"
    )


def ring_hosts(count: int) -> list[RingHost]:
    """Return hosts of equal weight."""
    return [RingHost(f"h{n:05}", f"10.{n // 256}.{n % 256}.1:7420", 100) for n in range(count)]


def policy_at(hosts: int) -> list[Overhead]:
    """Return what the policy takes for many hosts, a tenth of them overloaded."""
    link = PAPER_LINK
    draw = random.Random(1)
    maker = DecisionMaker(PolicySettings())

    def collection(at: float) -> Collection:
        loads = {}
        for number, host in enumerate(ring_hosts(hosts)):
            busy = 0.9 if number % 10 == 0 else 0.5 * draw.random()
            loads[host.name] = HostLoad(busy * link, busy * link, link=link)
        return Collection(at, loads)

    outcome, seconds = None, []
    for number in range(4):
        one = collection(10.0 * number)
        started = time.perf_counter()
        found = maker.decide(one, None)
        seconds.append(time.perf_counter() - started)
        outcome = outcome or found.decision
    ring = build_ring(ring_hosts(hosts), 65536, 1)
    started = time.perf_counter()
    following = building.next_ring(
        building.weighted(ring.hosts, outcome), ring, outcome, vnode_count=65536
    )
    built = time.perf_counter() - started
    assert outcome is not None, "a tenth of the hosts is overloaded"
    how = f"{hosts} hosts, a tenth overloaded"
    return [
        Overhead("one collection and decision", max(seconds) * 1e3, "ms", how),
        Overhead("building the next ring", built * 1e3, "ms", how),
        Overhead("ring, encoded", len(following.encode()) / 1e3, "kB", how),
        Overhead("decision, encoded", len(outcome.encode()) / 1e3, "kB", how),
    ]


def large_manifest(size: int) -> Manifest:
    """Return the manifest of a disk of which every chunk is another; nothing is stored."""
    builder = native.ImageBuilder(native.DigestIndex(CHUNK_SIZE))
    for first in range(0, size // CHUNK_SIZE, _BATCH):
        buffer = bytearray(
            b"".join(
                index.to_bytes(8, "little").ljust(CHUNK_SIZE, b"\1")
                for index in range(first, first + _BATCH)
            )
        )
        builder.absorb(native.scan_buffer(buffer, CHUNK_SIZE), buffer)
        if (first + _BATCH) % _PACK_CHUNKS == 0:
            builder.seal_pack((first // _PACK_CHUNKS).to_bytes(16, "little"))
    return builder.finish(str(uuid.uuid4()), size, 1)


class IdleCloud:
    """Hosts, agents and the policy, and nobody who reads anything."""

    def __init__(self, series: StormSeries, settings: EvaluationSettings) -> None:
        self._testbed = series.testbed
        self._settings = settings
        self._images = series.images
        self._manifest = large_manifest(IMAGE_BYTES)
        self._acstor = ControlledAcstor(series.testbed, series.images.image, settings)

    def measure(self) -> list[Overhead]:
        """Return what hosts do when nothing is to be done, and when an image is registered."""
        try:
            self._acstor.start()
            time.sleep(SETTLE_S)  # the first ring and the first image are not to be counted
            found = self._idle()
            found += self._distribution()
            control = self._acstor.stop_control()
        finally:
            self._acstor.stop()
        if control is not None:
            per_state = control["state_bytes"] / max(1, control["states"])
            found.append(
                Overhead("host state, JSON", per_state, "B", "mean, every sixth with a sketch")
            )
            found.append(
                Overhead(
                    "agents and policy, memory",
                    control["memory_bytes"] / 1e6,
                    "MB",
                    f"{self._settings.hosts} hosts in one process, at most",
                )
            )
        return found

    def _idle(self) -> list[Overhead]:
        names = [host.name for host in self._testbed.hosts]
        counted, spent = self._testbed.network.counters(), self._control_cpu_s()
        time.sleep(IDLE_S)
        after, spent_after = self._testbed.network.counters(), self._control_cpu_s()
        moved = sum((after[name] - counted[name]).sent for name in names)
        moved += sum((after[name] - counted[name]).received for name in names)
        per_look = moved / len(names) / IDLE_S * self._settings.interval
        per_host = (spent_after - spent) / IDLE_S / len(names) * 100
        how = f"one look and one state every {self._settings.interval:g} s, {len(names)} hosts"
        return [
            Overhead("looks of an agent at the origin, sent and received", per_look, "B", how),
            Overhead("agent and its part of the policy", per_host, "% of a core", how),
            Overhead(
                "the same at the default intervals",
                per_host * self._settings.interval / DEFAULT_STATE_S,
                "% of a core",
                f"scaled to a state every {DEFAULT_STATE_S:g} s",
            ),
        ]

    def _distribution(self) -> list[Overhead]:
        manifest = self._manifest
        content = manifest.to_bytes()
        memory = self._memory()
        counted = self._testbed.network.counters()
        started = time.monotonic()
        self._publish(manifest, content)
        for host in self._acstor.hosts.values():
            processes.wait_until(
                lambda host=host: any(  # type: ignore[misc]
                    one["id"] == manifest.disk_id for one in host.admin.call("image.list")
                ),
                f"{host.host.name} offers the image",
                timeout_s=READY_TIMEOUT_S,
            )
        elapsed = time.monotonic() - started
        sent = (self._testbed.network.counters()["origin"] - counted["origin"]).sent
        grown = (self._memory() - memory) / len(self._acstor.hosts)
        how = f"4 GiB image, {manifest.chunk_count} chunks"
        return [
            Overhead("manifest", len(content) / 1e6, "MB", how),
            Overhead("manifest to all hosts, over the origin's link", sent / 1e6, "MB", how),
            Overhead(
                "manifest on all hosts",
                elapsed,
                "s",
                f"{len(self._acstor.hosts)} hosts, links of {self._settings.rate}",
            ),
            Overhead("memory of a data plane for it", grown / 1e6, "MB", "mean growth of its RSS"),
        ]

    def _publish(self, manifest: Manifest, content: bytes) -> None:
        origin = open_origin(self._acstor.repository.directory_url, READY_TIMEOUT_S)
        origin.put_if_absent(layout.manifest_key(manifest.digest), [content])
        record = ImageRecord(
            manifest=manifest.digest,
            content=WholeManifest(manifest).content_name(),
            name="evaluation",
            size_bytes=manifest.size_bytes,
            chunk_size=manifest.chunk_size,
            chunk_count=manifest.chunk_count,
            unique_count=manifest.chunk_count,
            zero_count=0,
            source_format="raw",
            registered_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
        origin.swap_ref(layout.image_ref(manifest.disk_id), None, record.encode())

    def _control_cpu_s(self) -> float:
        pid = self._acstor.control_pid
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS

    def _memory(self) -> int:
        """Return the resident bytes of all data planes."""
        total = 0
        for host in self._acstor.hosts.values():
            pid = (host.status() or {})["pid"]
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
        return total


def measure(settings: EvaluationSettings) -> list[Overhead]:
    """Return all figures."""
    found = [lookup(settings.hosts), lookup(HOSTS_LARGE), *policy_at(HOSTS_LARGE)]
    found.append(
        Overhead(
            "host state over RabbitMQ",
            message_bytes.per_state(),
            "B",
            "both directions on the interface, with a sketch of 256 hashes in every sixth",
        )
    )
    with StormSeries(settings) as series:
        found += IdleCloud(series, settings).measure()
    return found + extrapolated(found)


def extrapolated(found: Sequence[Overhead]) -> list[Overhead]:
    """Return what one of 1,000 hosts moves at the default intervals, as a share of a link."""
    by_name = {one.what: one.value for one in found}
    state = by_name["host state over RabbitMQ"]
    look = by_name["looks of an agent at the origin, sent and received"]
    per_s = state / DEFAULT_STATE_S + look / DEFAULT_LOOK_S
    ring = by_name["ring, encoded"] * 1e3
    return [
        Overhead(
            "control traffic of one of 1,000 hosts",
            per_s,
            "B/s",
            "a state every 10 s, a look every 5 s, no new ring",
        ),
        Overhead("part of a 1 Gbit/s link", 100 * per_s / PAPER_LINK, "%", "of it"),
        Overhead(
            "the same with a new ring every minute",
            100 * (per_s + ring / 60) / PAPER_LINK,
            "%",
            "more often than decisions come",
        ),
    ]


def as_json(found: Sequence[Overhead]) -> str:
    """Return the figures as JSON."""
    return json.dumps([dataclasses.asdict(one) for one in found], indent=1)
