"""I/O of a volume from outside, through a whole data plane, beside nbdkit, qemu-nbd and qcow2.

One host with a real ``acstor-dataplane``, its origin a directory on the same disk; every way serves
512 MiB, written once, on a unix socket; the client, fio's nbd engine or QEMU's own, shares the
processors with the server. Runs take turns; before each run what the data plane does in the
background has ended and the disk's dirty pages are written.

  acstor          write-back, its period longer than the benchmark: the local log alone
  acstor-pushing  write-back every second, folding by default: what the origin costs meanwhile
  acstor-through  write-through: acknowledged when the origin has it
  acstor-image    of an image, not written: reads of the chunk store
  nbdkit          file plugin on a raw file
  qemu-nbd        ``--cache=writeback`` on a raw file: aio=threads, aio=io_uring where it works
  qcow2           the same, aio=threads, on a qcow2 whose clusters are all there

Targets: random reads and buffered writes at least 0.8 times the best of nbdkit and qemu-nbd on a
raw file, and 0.95 times over half a minute that ends with a flush, whose time counts: a short run
leaves everything in memory. Writes with an fsync each at least 1.2 times qcow2, with one for eight
as fast. The processor time that a server takes for a request is given too: it says most of what a
ratio comes from.

Needs root, fio, nbdkit and qemu-utils. One command: ``python -m bench.volumes [--json FILE]``.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from acstor.repository.volumes.durability import Durability, DurabilityClass
from bench import comparison, nbd, served_disk
from bench.comparison import Row, Series
from bench.nbd import Figure, Server
from testbed import processes
from testbed.fixtures import host_volumes
from testbed.fixtures.host_volumes import Volumes
from testbed.fixtures.hosts import Host, cloud_in

SIZE = 512 << 20
SECONDS = 2.0
#: Of a run after which everything is on the disk: in two seconds most servers write nothing to it.
WHOLE_S = 30.0
SETTLE_TIMEOUT_S = 60.0
LATER_S = 86400.0
IMAGE = "acstor-image"
WRITABLE = {
    "acstor": Durability(DurabilityClass.WRITE_BACK, period_s=LATER_S),
    "acstor-pushing": Durability(DurabilityClass.WRITE_BACK, period_s=1.0),
    "acstor-through": Durability(DurabilityClass.WRITE_THROUGH),
}
LOCAL, PUSHING, THROUGH = WRITABLE
QCOW2 = "qcow2"


@dataclasses.dataclass(frozen=True)
class Shape:
    """A kind of load, and whom it is compared with."""

    rw: str
    block: str
    depth: int
    ours: Sequence[str]
    fsync: int = 0  #: after so many writes; 0: never
    count: int = 0  #: requests of ``qemu-img bench``; 0: fio, for some seconds
    whole_s: float = 0.0  #: so long, and a flush, whose time counts; 0: what other shapes take
    target: float | None = None  #: of the best with a raw file; with fsync: of qcow2

    @property
    def is_read(self) -> bool:
        return self.rw.endswith("read")


READS = (LOCAL, IMAGE)
WRITES = (LOCAL, PUSHING)
SHAPES = {
    "random read 4 KiB, depth 1": Shape("randread", "4k", 1, READS, target=0.8),
    "random read 4 KiB, depth 32": Shape("randread", "4k", 32, READS, target=0.8),
    "random write 4 KiB, depth 1": Shape("randwrite", "4k", 1, WRITES, target=0.8),
    "random write 4 KiB, depth 32": Shape(
        "randwrite", "4k", 32, (LOCAL, PUSHING, THROUGH), target=0.8
    ),
    "read 64 KiB, depth 8": Shape("read", "64k", 8, READS),
    "write 64 KiB, depth 8": Shape("write", "64k", 8, WRITES, target=0.8),
    "read 1 MiB, depth 4": Shape("read", "1M", 4, READS),
    "write 1 MiB, depth 4": Shape("write", "1M", 4, WRITES, target=0.8),
    "write 64 KiB, depth 8, to the disk": Shape(
        "write", "64k", 8, (LOCAL,), whole_s=WHOLE_S, target=0.95
    ),
    "write 1 MiB, depth 4, to the disk": Shape(
        "write", "1M", 4, (LOCAL,), whole_s=WHOLE_S, target=0.95
    ),
    "write 4 KiB, fsync after each": Shape(
        "randwrite", "4k", 1, (LOCAL, PUSHING, THROUGH), fsync=1, target=1.2
    ),
    "write 4 KiB, fsync after 8": Shape("randwrite", "4k", 1, WRITES, fsync=8, target=1.0),
    "QEMU's client: read 4 KiB, depth 32": Shape("read", "4096", 32, READS, count=100_000),
    "QEMU's client: write 4 KiB, depth 32": Shape("write", "4096", 32, (LOCAL,), count=100_000),
}


def peers(directory: pathlib.Path) -> dict[str, list[str]]:
    """Return the commands of the peers, each with a file of its own, which is made here."""

    def file(name: str, image_format: str = "raw") -> str:
        path = directory / f"{name}.{image_format}"
        processes.run(["qemu-img", "create", "-q", "-f", image_format, str(path), str(SIZE)])
        return str(path)

    def qemu(name: str, image_format: str, aio: str) -> list[str]:
        return [
            "qemu-nbd", "--persistent", "--shared=16", f"--format={image_format}",
            "--cache=writeback", f"--aio={aio}", "--export-name=disk",
            f"--socket={directory / name}.sock", file(name, image_format),
        ]  # fmt: skip

    kit = ["nbdkit", "--foreground", "--exportname=disk", "--unix", f"{directory}/nbdkit.sock"]
    return {
        "nbdkit": [*kit, "file", file("nbdkit")],
        "qemu-nbd": qemu("qemu-nbd", "raw", "threads"),
        "qemu-nbd-uring": qemu("qemu-nbd-uring", "raw", "io_uring"),
        QCOW2: qemu(QCOW2, "qcow2", "threads"),
    }


@contextlib.contextmanager
def running_peers(directory: pathlib.Path) -> Iterator[dict[str, Server]]:
    """Serve by every peer that works here; say which does not."""
    with contextlib.ExitStack() as stack:
        servers = {}
        for name, command in peers(directory).items():
            try:
                servers[name] = stack.enter_context(nbd.served(name, command, directory))
                measure(servers[name], Shape("write", "1M", 4, ()))  # no holes
            except Exception as error:
                if name != "qemu-nbd-uring":
                    raise
                servers.pop(name, None)
                print(f"without {name}: {error}", file=sys.stderr)
        yield servers


@contextlib.contextmanager
def running_volumes(
    directory: pathlib.Path, origin_url: str | None = None
) -> Iterator[tuple[Host, dict[str, Server]]]:
    """Serve all volumes by one data plane.

    :param origin_url: None: a directory on the same disk.
    """
    with cloud_in(directory, origin_url) as cloud:
        store = {"capacity": str(2 * SIZE)}
        host = cloud.add_host(agent=False, store=store)
        disk = directory / "image.raw"
        served_disk.write_random(disk, SIZE)
        image_id = cloud.register_file(disk)
        control = Volumes(cloud)
        made = {name: control.create(SIZE, host, durability=WRITABLE[name]) for name in WRITABLE}
        made[IMAGE] = control.create(SIZE, host, image_id=image_id)
        pid = host.dataplane_pid()
        if pid is None:
            raise SystemExit(f"the data plane has ended: {host.log()}")
        opened = {name: host_volumes.open_volume(host, volume) for name, volume in made.items()}
        servers = {name: Server(host_volumes.uri(each), pid) for name, each in opened.items()}
        for name in WRITABLE:
            fill(servers[name], "write")
        fill(servers[IMAGE], "read")
        yield host, servers
        for volume in made.values():
            host_volumes.call(host, "close", volume, force=True)


def fill(server: Server, rw: str) -> None:
    """Write, or read, everything once."""
    command = fio(server, Shape(rw, "1M", 4, ()))
    processes.run(command, timeout_s=120.0)


def fio(server: Server, shape: Shape) -> list[str]:
    command = ["fio", "--name=bench", "--ioengine=nbd", f"--uri={server.uri}", f"--rw={shape.rw}"]
    command += [f"--bs={shape.block}", f"--iodepth={shape.depth}", f"--size={SIZE}"]
    command += [f"--end_fsync={int(shape.whole_s > 0)}"]
    return [*command, "--randrepeat=1", f"--fsync={shape.fsync}", "--output-format=json"]


def measure(server: Server, shape: Shape, seconds: float = SECONDS) -> Figure:
    """Load a server and return the requests per second and its processor time for each."""
    before = served_disk.cpu_seconds(server.pid)
    if shape.count:
        rate, count = with_qemu(server, shape), shape.count
    else:
        seconds = shape.whole_s or seconds
        command = [*fio(server, shape), "--time_based", f"--runtime={round(seconds * 1000)}ms"]
        started = time.monotonic()
        output = processes.run(command, timeout_s=60.0 + 3 * seconds)
        elapsed = time.monotonic() - started
        job = json.loads(output[output.index("{") :])["jobs"][0]
        figures = job["read" if shape.is_read else "write"]
        rate, count = float(figures["iops"]), int(figures["total_ios"])
        if shape.whole_s:
            rate = count / elapsed
    used = served_disk.cpu_seconds(server.pid) - before
    return Figure(rate, used * 1e6 / max(1, count))


def with_qemu(server: Server, shape: Shape) -> float:
    """Load a server by ``qemu-img bench``, one request after the other, at most so many at once."""
    command = ["qemu-img", "bench", "-f", "raw", "-c", str(shape.count), "-d", str(shape.depth)]
    command += ["-s", shape.block, *([] if shape.is_read else ["-w"]), server.uri]
    found = re.search(r"completed in ([0-9.]+) seconds", processes.run(command, timeout_s=120.0))
    if found is None:
        raise SystemExit("qemu-img bench does not say how long it took")
    return shape.count / float(found[1])


def settle(pid: int) -> None:
    """Wait until the data plane's own work has ended, and write the dirty pages of the disk."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    used = -1.0
    while (now := served_disk.cpu_seconds(pid)) > used + 0.01 and time.monotonic() < deadline:
        used = now
        time.sleep(0.3)
    os.sync()


def measured(
    servers: Mapping[str, Server], shape: Shape, runs: int, seconds: float
) -> dict[str, list[Figure]]:
    """Measure all that a shape concerns, in turns."""
    theirs = [name for name in servers if not name.startswith("acstor")]
    if not shape.fsync:
        theirs.remove(QCOW2)
    figures: dict[str, list[Figure]] = {name: [] for name in (*shape.ours, *theirs)}
    for _ in range(runs):
        for name, values in figures.items():
            settle(servers[LOCAL].pid)
            values.append(measure(servers[name], shape, seconds))
    return figures


def rates_of(figures: Mapping[str, Sequence[Figure]], name: str) -> Series:
    """Return the requests per second that one of the compared reached."""
    return Series(name, "/s", [figure.per_second for figure in figures[name]])


def times_of(figures: Mapping[str, Sequence[Figure]], name: str) -> Series:
    """Return the processor time for a request that one of the compared took, us."""
    # A clock tick is 10 ms: no run is without one.
    return Series(name, "us", [max(figure.cpu_us, 0.01) for figure in figures[name]])


def rows_of(what: str, shape: Shape, figures: Mapping[str, Sequence[Figure]]) -> list[Row]:
    """Return the figures of a shape: beside the best with a raw file; with fsync beside qcow2."""

    rates = functools.partial(rates_of, figures)
    times = functools.partial(times_of, figures)
    raw = [name for name in figures if not name.startswith("acstor") and name != QCOW2]
    best = max(raw, key=lambda name: rates(name).median)
    rows = []
    for ours in shape.ours:
        target, met = "", None
        if shape.target is not None and ours != THROUGH:
            target, met = f">= {shape.target:g}x", comparison.at_least(shape.target)
        if shape.fsync:
            rows.append(Row(f"{what}: {ours}", rates(ours), rates(QCOW2), target, met))
            target, met = "", None
        rows.append(Row(f"{what}: {ours}", rates(ours), rates(best), target, met))
        rows.append(Row(f"{what}: {ours}: server's time", times(ours), times(best)))
    return rows


class Rated(Protocol):
    """A figure of any of these benchmarks."""

    @property
    def per_second(self) -> float:
        """Requests per second."""


def arguments(description: str, seconds: float) -> argparse.ArgumentParser:
    """Return the options of a benchmark of volumes.

    :param seconds: of a run of fio, where nothing else is said; what is given is of its type.
    """
    parser = comparison.arguments(description)
    parser.add_argument("--only", help="figures whose name contains this")
    parser.add_argument(
        "--seconds", type=type(seconds), default=seconds,
        help="of a run of fio (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--directory", type=pathlib.Path, default=pathlib.Path("/var/tmp"),
        help="where everything lies: on the disk to measure (default: %(default)s)",
    )  # fmt: skip
    return parser


def print_medians(what: str, figures: Mapping[str, Sequence[Rated]]) -> None:
    """Print the figures of a shape while others are measured still."""
    for name, values in figures.items():
        rate = statistics.median(figure.per_second for figure in values)
        print(f"{what:38} {name:16} {rate:12,.0f} /s", file=sys.stderr)


def main() -> int:
    options = arguments(__doc__ or "", SECONDS).parse_args()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        base = tempfile.TemporaryDirectory(dir=options.directory, prefix="acstor-bench-")
        directory = pathlib.Path(stack.enter_context(base))
        host, servers = stack.enter_context(running_volumes(directory))
        servers |= stack.enter_context(running_peers(directory))
        for what, shape in SHAPES.items():
            if options.only and options.only not in what:
                continue
            figures = measured(servers, shape, options.runs, options.seconds)
            print_medians(what, figures)
            if host.dataplane_pid() != servers[LOCAL].pid:
                raise SystemExit(f"the data plane has ended: {host.log()}")
            rows += rows_of(what, shape, figures)
    comparison.report("Volumes, one client over a unix socket", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
