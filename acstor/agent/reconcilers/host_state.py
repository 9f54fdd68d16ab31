"""Tells schedulers and policy services how this host is: the reconciler and its thread.

A pass notes whether the data plane is up and draining. The thread samples the network, tells the
data plane what is free of it, composes the whole state and hands it to the sender every interval,
and at once when one of the two changed.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from acstor import exception, version
from acstor.agent.free_rate_telling import FreeRateTelling
from acstor.agent.reconciler import HostSnapshot
from acstor.control.client import AdminClient
from acstor.telemetry import data_plane_readings, host_states
from acstor.telemetry.data_plane_readings import DataPlaneLoad, LoadMeter, Reading
from acstor.telemetry.disk_watch import DiskWatch, worst
from acstor.telemetry.host_state_details import SKETCH_HASHES_MAX, ChunkSketch, PeerLatency
from acstor.telemetry.host_states import HostState, SequenceNumbers, most_covered
from acstor.telemetry.traffic import ExtraTraffic, Interfaces, TrafficMeter

LOG = logging.getLogger(__name__)

METRICS_TIMEOUT = 2.0
"""Seconds that the data plane may take for its metrics."""
SKETCH_TIMEOUT = 5.0
"""Seconds that the data plane may take to sketch its chunk store."""
SKETCH_EVERY = 6
"""States with one sketch among them: what a host holds changes slowly."""
_JITTER = 0.1
"""Part of the interval by which a state may come sooner; never later, for the policy waits for two
of them."""
_UP_STATES = frozenset({"serving", "draining"})


class Publisher(Protocol):
    """Sender of the states."""

    def start(self) -> None:
        """Start what sends them."""

    def send(self, state: HostState) -> None:
        """Have this state sent; never blocks."""

    def stop(self, timeout: float) -> None:
        """Stop what sends them."""


@dataclass(frozen=True)
class _Facts:
    """Findings of the last pass."""

    is_up: bool
    is_draining: bool
    peer_address: str | None
    images: tuple[str, ...]
    peers: Mapping[str, PeerLatency]


class HostStateReconciler:
    """Keeps the schedulers told.

    :param host: name of this host.
    :param interval: seconds between two states when nothing changes.
    :param data_plane: of this host, for its metrics.
    :param is_origin_remote: whether reads of the origin go over the network.
    :param coverage: by image id the share of its boot working set that this host holds.
    :param publisher: None: nobody is told (there is no message transport), traffic is still
        measured.
    :param disk_watch: of the disk of the chunk store; None: only the data plane's own errors tell.
    :param on_traffic: called with each measurement, for metrics.
    :param on_load: called with each measurement of the data plane, for metrics; None: not known.
    :param requests_max: ``[peer] requests_inflight_max`` of the data plane.
    :param clock: monotonic seconds.
    """

    name = "host state"

    def __init__(
        self,
        host: str,
        interval: float,
        *,
        data_plane: AdminClient,
        interfaces: Interfaces,
        is_origin_remote: bool,
        coverage: Callable[[], Mapping[str, float]] = dict,
        publisher: Publisher | None = None,
        disk_watch: DiskWatch | None = None,
        on_traffic: Callable[[ExtraTraffic], None] = lambda traffic: None,
        on_load: Callable[[DataPlaneLoad | None], None] = lambda load: None,
        requests_max: int = 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._interval = interval
        self._data_plane = data_plane
        self._interfaces = interfaces
        self._is_origin_remote = is_origin_remote
        self._coverage = coverage
        self._publisher = publisher
        self._disk_watch = disk_watch
        self._on_traffic = on_traffic
        self._on_load = on_load
        self._clock = clock
        self._meter = TrafficMeter()
        self._load_meter = LoadMeter(requests_max)
        self._free_rates = FreeRateTelling(data_plane, interval)
        self._until_sketch = 0
        self._is_sketch_missed = False
        self._traffic = ExtraTraffic()
        self._numbers = SequenceNumbers()
        self._listed = random.randrange(1 << 30)  # hosts begin at different images
        self._condition = threading.Condition()  # of the three below
        self._facts: _Facts | None = None
        self._is_due = False
        self._is_stopping = False
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="host-state", daemon=True)

    @property
    def traffic(self) -> ExtraTraffic:
        """The last measurement."""
        return self._traffic

    def link_bytes_per_s(self) -> float | None:
        """Return the speed of the host's links in one direction; None: not known."""
        return self._traffic.link_bytes_per_s

    def start(self) -> None:
        """Start the threads."""
        if self._publisher is not None:
            self._publisher.start()
        if self._disk_watch is not None:
            self._disk_watch.start()
        self._thread.start()

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Note what a pass found; have a change told at once."""
        status = snapshot.status
        is_up = status is not None and status.get("process_state") in _UP_STATES
        with self._condition:
            former = self._facts
            images = former.images if former is not None else ()
            if snapshot.registered is not None:
                images = tuple(sorted(snapshot.registered))
            self._facts = _Facts(
                is_up,
                snapshot.is_draining,
                str(status["peer_address"]) if status and "peer_address" in status else None,
                images,
                self._peers(status) if status is not None and is_up else {},
            )
            if former is None or (former.is_up, former.is_draining) != (
                is_up,
                snapshot.is_draining,
            ):
                self._is_due = True
                self._condition.notify()
        return {self.name: self._problem} if self._problem is not None else {}

    def stop(self, timeout: float) -> None:
        """Stop the threads, within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._publisher is not None:
            self._publisher.stop(max(0.0, deadline - time.monotonic()))
        if self._disk_watch is not None:
            self._disk_watch.stop(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (facts := self._next()) is not None:
            try:
                self._tell(facts)
            except Exception:
                # A fault here is not to silence the host for good.
                LOG.exception("the state of this host is not told")

    def _next(self) -> _Facts | None:
        """Return what to tell now; wait until there is something. None: stop."""
        pause = self._interval * random.uniform(1 - _JITTER, 1)
        with self._condition:
            self._condition.wait_for(lambda: self._is_due or self._is_stopping, pause)
            self._condition.wait_for(lambda: self._facts is not None or self._is_stopping)
            self._is_due = False
            return None if self._is_stopping else self._facts

    def _tell(self, facts: _Facts) -> None:
        reading = self._read(facts)
        self._traffic = self._measure(facts, reading)
        if facts.is_up:
            self._free_rates.tell(self._traffic)
        load = self._load_meter.sample(reading) if isinstance(reading, Reading) else None
        told_by_disk = self._disk_watch.health if self._disk_watch is not None else None
        disk = worst(told_by_disk, load.disk if load is not None else None)
        if load is not None:
            load = replace(load, peers=facts.peers, disk=disk or load.disk)
        self._on_traffic(self._traffic)
        self._on_load(load)
        if self._publisher is None:
            return
        self._publisher.send(
            HostState(
                host=self._host,
                sequence=self._numbers.next(),
                release=version.release()[: host_states.RELEASE_LENGTH_MAX],
                is_up=facts.is_up,
                is_draining=facts.is_draining,
                extra_in=self._traffic.extra_in,
                extra_out=self._traffic.extra_out,
                link_bytes_per_s=self._traffic.link_bytes_per_s,
                coverage=most_covered(self._covered(facts)),
                images=self._list_some(facts.images),
                moved_in=self._traffic.moved_in,
                moved_out=self._traffic.moved_out,
                load=load.load if load else None,
                sketch=self._sketch(facts),
                peers=facts.peers,
                disk=disk,
            )
        )

    def _peers(self, status: Mapping[str, object]) -> Mapping[str, PeerLatency]:
        try:
            return data_plane_readings.peers_of(status)
        except exception.InvalidError as error:
            LOG.warning("%s", error)
            return {}

    def _read(self, facts: _Facts) -> Reading | Exception | None:
        """Return what the data plane says; None: it is not up. An error: it should, and does not.

        The error is returned, since it is not to keep the interfaces from being looked at.
        """
        if not facts.is_up:
            return None
        try:
            text = self._data_plane.call("metrics", call_timeout=METRICS_TIMEOUT)
            found = data_plane_readings.read(str(text), is_origin_remote=self._is_origin_remote)
            return found if found is not None else Reading()
        except exception.AcstorError as error:
            return error

    def _measure(self, facts: _Facts, reading: Reading | Exception | None) -> ExtraTraffic:
        problem = None
        unknown = ExtraTraffic(link_bytes_per_s=self._traffic.link_bytes_per_s)
        try:
            if isinstance(reading, Exception):
                raise reading
            found = self._interfaces.read(facts.peer_address)
            if not found:
                problem = "no network interface to measure; name some in [agent] interfaces"
            moved = reading.moved if reading is not None else None  # what is not up moves nothing
            return self._meter.sample(self._clock(), found, moved)
        except exception.UnavailableError:
            return unknown  # the next pass says so; what moved meanwhile is not known
        except (exception.AcstorError, OSError) as error:
            problem = exception.one_line(error)
            return unknown
        finally:
            self._problem = problem

    def _sketch(self, facts: _Facts) -> ChunkSketch | None:
        """Return a sketch of the chunk store where one is due; the first with the first state."""
        if not facts.is_up:
            return None
        self._until_sketch -= 1
        if self._until_sketch >= 0:
            return None
        self._until_sketch = SKETCH_EVERY - 1
        try:
            found = self._data_plane.call(
                "store.sketch", call_timeout=SKETCH_TIMEOUT, count=SKETCH_HASHES_MAX
            )
            sketch = ChunkSketch.from_message(found)
        except exception.AcstorError as error:
            # An older data plane has no such method; weights move without similarity then.
            if not self._is_sketch_missed:
                LOG.info("the chunk store of this host is not sketched: %s", error)
            self._is_sketch_missed = True
            return None
        self._is_sketch_missed = False
        return sketch

    def _covered(self, facts: _Facts) -> Mapping[str, float]:
        if not facts.is_up:
            return {}
        return {image: min(1.0, max(0.0, share)) for image, share in self._coverage().items()}

    def _list_some(self, images: Sequence[str]) -> tuple[str, ...]:
        """Return as many ids as a message may list, others each time until all were listed."""
        count = min(len(images), host_states.LISTED_IMAGES_MAX)
        if not count:
            return ()
        first = self._listed % len(images)
        self._listed = first + count
        turned = [*images[first:], *images[:first]]
        return tuple(turned[:count])
