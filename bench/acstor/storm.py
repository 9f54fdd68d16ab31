"""One storm: an approach started cold, extra traffic, all guests, everything that is counted."""

import dataclasses
import json
import pathlib
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from acstor.cluster.decision_journal import read_records
from acstor.cluster.ring.published_ring import RingReference
from acstor.exception import AcstorError
from acstor.origin.opening import open_origin
from bench.acstor import approaches, extra_traffic, guests
from bench.acstor.approaches import ControlledAcstor, Counters, StormApproach
from bench.acstor.extra_traffic import Plan
from bench.acstor.guests import Crowd, Guest, GuestResult
from bench.acstor.images import Images
from bench.acstor.processor import ProcessorTime
from bench.acstor.result import Generation, StormResult, Traffic
from bench.acstor.settings import ROOT, EvaluationSettings
from sim.traffic import ExtraFlows, cv_of
from testbed import processes
from testbed.network import LinkBytes
from testbed.processes import RunningProcess
from testbed.testbed import Testbed

SAMPLE_S = 0.5
SETTLE_S = 3.0
"""Seconds of extra traffic before the guests of an approach that does not adapt."""
READY_TIMEOUT_S = 30.0
SPARE_S = 60.0
"""Seconds for which extra traffic may go on after the guests' deadline."""
OnDone = Callable[[int, int], None]
"""Takes the number of guests that are done and that of all."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """A storm as it runs."""

    elapsed_s: float
    """Since the first guest's start."""
    guests: int
    done: Sequence[GuestResult]
    links: Mapping[str, LinkBytes]
    """By member, since the first guest's start."""


OnProgress = Callable[[Progress], None]
"""Takes each sample while guests boot."""


class Storm:
    """Runs one approach once."""

    def __init__(
        self, testbed: Testbed, images: Images, settings: EvaluationSettings, name: str
    ) -> None:
        self._testbed = testbed
        self._images = images
        self._settings = settings
        self._name = name
        self._approach: StormApproach = approaches.make(name, testbed, images.image, settings)
        self._directory = testbed.run.directory("storms", f"{name}-{time.time_ns()}")
        self._traffic: RunningProcess | None = None
        self._samples: list[tuple[float, dict[str, LinkBytes]]] = []
        self._generations: list[Generation] = []
        self._rings: RingReference | None = None
        self._former: Any = None
        self._began = 0.0

    def run(
        self,
        on_done: OnDone = lambda done, total: None,
        on_progress: OnProgress = lambda progress: None,
    ) -> StormResult:
        """Start everything, wait for the guests, count, stop everything.

        :raises TestbedError: when a server does not start.
        """
        try:
            self._approach.start()
            crowd = self._crowd()
            if self._settings.is_warm:
                self._run_guests(crowd, time.monotonic(), on_done)
            before = self._approach.count()
            traffic = self._start_traffic()
            busy_before, counted_before = ProcessorTime.now(), self._testbed.network.counters()
            started = time.monotonic()
            found = self._run_guests(crowd, started, on_done, on_progress)
            elapsed = time.monotonic() - started
            idle = ProcessorTime.now().idle_share_since(busy_before)
            counted = self._testbed.network.counters()
            self._approach.measure()
            counters = grown(before, self._approach.count())
            report = self._stop_traffic()
            control, decisions = self._stop_control()
        finally:
            self._stop_traffic()
            self._approach.stop()
        kept = self._approach.kept
        return StormResult(
            approach=self._name,
            guests=found,
            deadline_s=self._settings.deadline,
            elapsed_s=elapsed,
            origin_sent=(counted["origin"] - counted_before["origin"]).sent,
            origin_chunk_bytes=kept.origin_chunk_bytes,
            union_bytes=kept.union_bytes,
            processor_idle=idle,
            cv_series=self._cv_series(started),
            traffic=traffic if report is None else _reported(traffic, report),
            counters=counters,
            control=control,
            decisions=decisions,
            generations=self._generations,
        )

    # Extra traffic

    def _start_traffic(self) -> Traffic:
        """Start it, wait as long as the approach may need to adapt, and count meanwhile."""
        settings, hosts = self._settings, self._testbed.hosts
        drawn = self._drawn()
        is_adaptive = isinstance(self._approach.kept, ControlledAcstor)
        self._samples.clear()
        self._began = time.monotonic()
        if is_adaptive:
            self._watch_rings()
        if len(drawn.rate):
            plan = Plan(
                [extra_traffic.Host(host.namespace, host.address) for host in hosts],
                extra_traffic.as_flows(drawn, settings.udp_share),
                settings.warm_up + settings.deadline + SPARE_S,
            )
            path = self._directory / "traffic.json"
            plan.save(path)
            self._traffic = self._spawn("traffic", "bench.acstor.extra_traffic", path)
            sending = self._traffic
            processes.wait_until(
                lambda: b"sending" in sending.log_path.read_bytes(),
                "extra traffic is sent",
                timeout_s=READY_TIMEOUT_S,
                processes=[sending],
            )
            self._began = time.monotonic()
        self._sample_until(self._began + (settings.warm_up if is_adaptive else SETTLE_S))
        wanted = drawn.host_traffic(settings.hosts)
        measured = self._rates(0, len(self._samples) - 1)
        return Traffic(float(wanted.mean()), cv_of(wanted), float(measured.mean()), cv_of(measured))

    def _drawn(self) -> ExtraFlows:
        settings, link = self._settings, self._settings.rate.bytes_per_s
        if settings.busy_hosts:
            return extra_traffic.of_busy(
                settings.hosts, settings.busy_hosts, settings.busy_share, link
            )
        return extra_traffic.draw(
            settings.hosts,
            settings.mean_bytes_per_s,
            settings.cv,
            link,
            settings.flows_per_host,
            settings.seed,
        )

    def _stop_traffic(self) -> dict[str, Any] | None:
        if self._traffic is None:
            return None
        process, self._traffic = self._traffic, None
        self._testbed.table.stop(process)
        return last_line(process)

    # Guests

    def _crowd(self) -> Crowd:
        """Return the guests, host by host as they are in the simulator; images at random."""
        settings, hosts = self._settings, self._testbed.hosts
        draw = random.Random(settings.seed)
        listed = []
        for number in range(settings.hosts * settings.guests_per_host):
            host = hosts[number % settings.hosts]
            image = draw.randrange(len(self._images.traces))
            listed.append(
                Guest(
                    f"{host.name}-g{number // settings.hosts}",
                    host.name,
                    str(self._images.traces[image]),
                    str(self._approach.file(host)),
                    draw.uniform(0, settings.stagger),
                    self._images.served_bytes[image] if self._images.served_bytes else 0,
                )
            )
        return Crowd(listed, settings.think_scale, settings.deadline)

    def _run_guests(
        self,
        crowd: Crowd,
        started: float,
        on_done: OnDone,
        on_progress: OnProgress = lambda progress: None,
    ) -> list[GuestResult]:
        before = self._testbed.network.counters()
        path = self._directory / f"guests-{time.time_ns()}.json"
        crowd.save(path)
        process = self._spawn(path.stem, "bench.acstor.guests", path)
        limit = started + crowd.deadline_s + READY_TIMEOUT_S
        while process.is_alive and time.monotonic() < limit:
            self._sample_until(time.monotonic() + SAMPLE_S)
            done = results_of(process)
            on_done(len(done), len(crowd.guests))
            at, now = self._samples[-1]
            links = {name: now[name] - before[name] for name in now}
            on_progress(Progress(at - started, len(crowd.guests), done, links))
        self._testbed.table.stop(process)
        return guests.completed(crowd.guests, results_of(process))

    # Counting

    def _sample_until(self, end: float) -> None:
        while True:
            self._samples.append((time.monotonic(), self._testbed.network.counters()))
            self._check_ring()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(SAMPLE_S, left))

    def _rates(self, first: int, last: int) -> np.ndarray:
        """Return what hosts sent and received between two samples, bytes per second."""
        (at, before), (until, after) = self._samples[first], self._samples[last]
        names = [host.name for host in self._testbed.hosts]
        moved = [after[name] - before[name] for name in names]
        return np.array([one.sent + one.received for one in moved]) / max(until - at, 1e-9)

    def _cv_series(self, started: float) -> list[tuple[float, float]]:
        return [
            (self._samples[number][0] - started, cv_of(self._rates(number - 1, number)))
            for number in range(1, len(self._samples))
            if self._samples[number][0] - self._samples[number - 1][0] > SAMPLE_S / 2
        ]

    # Control

    def _watch_rings(self) -> None:
        kept = self._approach.kept
        assert isinstance(kept, ControlledAcstor)
        self._rings = RingReference(open_origin(kept.repository.directory_url, READY_TIMEOUT_S))
        published = self._rings.current()
        self._former = published.ring if published else None

    def _check_ring(self) -> None:
        if self._rings is None or self._former is None:
            return
        published = self._rings.current()
        if published is None or published.ring.generation == self._former.generation:
            return
        ring, former = published.ring, self._former
        self._former = ring
        self._generations.append(
            Generation(
                ring.generation,
                time.monotonic() - self._began,
                ring.moved_share(former),
                former.least_moved_share(ring.hosts, ring.vnode_count),
            )
        )

    def _stop_control(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        kept = self._approach.kept
        if not isinstance(kept, ControlledAcstor):
            return None, []
        found = kept.stop_control()
        decisions = []
        try:
            for record in read_records(str(kept.journal)):
                if record["kind"] == "decision":
                    decisions.append(_short(record))
        except (AcstorError, FileNotFoundError):
            pass  # nothing was decided, so there is no journal
        return found, decisions

    def _spawn(self, name: str, module: str, path: pathlib.Path) -> RunningProcess:
        return self._testbed.table.spawn(
            f"{name}-{self._directory.name}",
            [sys.executable, "-m", module, str(path)],
            env={"PYTHONPATH": str(ROOT)},
        )


def results_of(process: RunningProcess) -> list[GuestResult]:
    """Return what the guests' process has told so far."""
    lines = process.log_path.read_bytes().split(b"\n")[:-1]
    return [GuestResult(**json.loads(line)) for line in lines if line.startswith(b"{")]


def grown(before: Counters, after: Counters) -> dict[str, float]:
    """Return by how much counters grew; those that did not are left out."""
    return {
        name: value - before.get(name, 0.0)
        for name, value in after.items()
        if value != before.get(name, 0.0)
    }


def last_line(process: RunningProcess) -> dict[str, Any] | None:
    """Return the JSON object that a program printed last; None: it printed none."""
    try:
        found = json.loads(process.log_tail(1))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _reported(traffic: Traffic, report: dict[str, Any]) -> Traffic:
    return Traffic(
        traffic.mean_bytes_per_s,
        traffic.cv,
        traffic.measured_mean_bytes_per_s,
        traffic.measured_cv,
        report,
    )


def _short(record: dict[str, Any]) -> dict[str, Any]:
    """Return what is worth keeping of a journal's record."""
    return {key: value for key, value in record.items() if key not in {"inputs", "memory"}}
