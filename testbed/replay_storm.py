"""Replay a boot trace on all hosts at once: the load of a boot storm without its guests."""

import dataclasses
import json
import pathlib
import time

from rich.console import Console
from rich.table import Table

from testbed import boot_trace, live_view, measurement, processes
from testbed.approaches.base import TierBytes
from testbed.approaches.collaborative import Acstor, Collaborative, StaticCollaborative
from testbed.exception import TestbedError, TraceFormatError
from testbed.guest import build
from testbed.guest.build import GuestImage
from testbed.guest.recipe import GuestRecipe
from testbed.network import LinkBytes
from testbed.replay import ReplayResult
from testbed.run_directory import DEFAULT_ROOT
from testbed.testbed import Testbed, TestbedSettings

REPLAY_TIMEOUT_S = 900.0
FORMAT = "acstor-replay-report"
FORMAT_VERSION = 1
_APPROACHES: dict[str, type[Collaborative]] = {
    approach.name: approach for approach in (Acstor, StaticCollaborative)
}


@dataclasses.dataclass(frozen=True)
class ReplayStormSettings:
    """Settings of the replays: testbed, trace, approach."""

    testbed: TestbedSettings
    trace: pathlib.Path
    approach: str = Acstor.name
    think_scale: float = 1.0
    direct: bool = True
    keep: bool = False
    root: pathlib.Path = DEFAULT_ROOT


@dataclasses.dataclass(frozen=True)
class ReplayStormResult:
    """Results of the replays on all hosts."""

    approach: str
    host_count: int
    hosts: dict[str, ReplayResult]
    tiers: dict[str, TierBytes]
    links: dict[str, LinkBytes]
    origin_chunk_bytes: int
    union_bytes: int
    trace_bytes: int
    elapsed_s: float
    machine: dict[str, str | int | float]
    format: str = FORMAT
    version: int = FORMAT_VERSION

    @property
    def origin_ratio(self) -> float:
        """Return chunk bytes out of the origin over those of the distinct chunks read."""
        return self.origin_chunk_bytes / self.union_bytes


def run_replays(settings: ReplayStormSettings) -> ReplayStormResult:
    """Start hosts, replay on all of them at once, measure, and remove everything.

    :raises TraceFormatError: when the trace is none, or of another guest.
    :raises TestbedError: when a host does not start, or a replay fails or reads wrong bytes.
    """
    trace = boot_trace.load(settings.trace)
    image = build.build_guest(GuestRecipe(), settings.root / "guests")
    check_belongs(trace, image)
    machine = measurement.machine()
    with Testbed.create(settings.testbed, settings.root, keep=settings.keep) as testbed:
        approach = _APPROACHES[settings.approach](testbed, image)
        try:
            approach.start()
            before = testbed.network.counters()
            started = time.monotonic()
            results = _replay_everywhere(approach, settings)
            elapsed = time.monotonic() - started
            after = testbed.network.counters()
            approach.measure()
        finally:
            approach.stop()
    return ReplayStormResult(
        approach=approach.name,
        host_count=settings.testbed.host_count,
        hosts=results,
        tiers=approach.tiers(),
        links={name: after[name] - before[name] for name in after},
        origin_chunk_bytes=approach.origin_chunk_bytes or 0,
        union_bytes=approach.union_bytes or 0,
        trace_bytes=trace.bytes_read,
        elapsed_s=elapsed,
        machine=machine,
    )


def check_belongs(trace: boot_trace.BootTrace, image: GuestImage) -> None:
    """Refuse a trace of another disk, before hosts are started for it.

    :raises TraceFormatError: when the disk has another size or other bytes at the first read.
    """
    first = trace.reads[0]
    with image.disk.open("rb") as disk:
        disk.seek(first.offset)
        content = disk.read(first.length)
    is_same = boot_trace.content_digest(content) == first.digest
    if trace.disk_size_bytes != image.disk_size_bytes or not is_same:
        raise TraceFormatError(f"the trace ({trace.source}) is not of {image.directory.name}")


def _replay_everywhere(
    approach: Collaborative, settings: ReplayStormSettings
) -> dict[str, ReplayResult]:
    testbed = approach.testbed
    options = ["--think-scale", str(settings.think_scale)]
    options += [] if settings.direct else ["--buffered"]
    running = {}
    for host in testbed.hosts:
        command = [*processes.module("testbed.replay"), *options]
        command += [str(settings.trace.resolve()), approach.disk(host).location]
        running[host.name] = testbed.table.spawn(f"replay-{host.name}", command, namespace=host)
    processes.wait_until(
        lambda: not any(process.is_alive for process in running.values()),
        "all replays are over",
        timeout_s=REPLAY_TIMEOUT_S,
    )
    for name, process in running.items():
        if process.popen.returncode != 0:
            raise TestbedError(f"the replay on {name} failed: {process.log_tail()}")
    return {
        name: ReplayResult(**json.loads(process.log_tail(1))) for name, process in running.items()
    }


def show(result: ReplayStormResult, console: Console) -> None:
    """Print a table."""
    table = Table(title=f"{result.approach}: a boot replayed on {result.host_count} hosts at once")
    table.add_column("host")
    for name in ("elapsed (s)", "waited (s)", "p50 (us)", "p99 (us)", "local", "peer", "origin"):
        table.add_column(name, justify="right")
    for name, host in result.hosts.items():
        tiers = result.tiers[name]
        table.add_row(
            name,
            f"{host.elapsed_s:.2f}",
            f"{host.waited_s:.2f}",
            f"{host.latency_p50_us:.0f}",
            f"{host.latency_p99_us:.0f}",
            live_view.megabytes(tiers.local),
            live_view.megabytes(tiers.peer),
            live_view.megabytes(tiers.origin),
        )
    console.print(table)
    console.print(
        f"chunks out of the origin {live_view.megabytes(result.origin_chunk_bytes)} MB, distinct "
        f"chunks read {live_view.megabytes(result.union_bytes)} MB: ratio {result.origin_ratio:.3f}"
    )


def write_json(result: ReplayStormResult, path: pathlib.Path) -> None:
    """Write the measurements."""
    path.write_text(json.dumps(dataclasses.asdict(result), indent=1) + "\n")
